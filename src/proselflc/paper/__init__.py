"""The tables and figures of the paper, by their numbers."""
