"""The networks: small ones for CPUs, the paper's, and any that the user names. Knows no method."""
