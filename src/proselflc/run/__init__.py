"""A run from its config to its summary, and a finished run as typed objects."""
