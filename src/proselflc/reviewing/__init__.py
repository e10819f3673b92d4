"""A page on which people decide about labels."""
