"""The command line: what a user types, and what comes of it."""
