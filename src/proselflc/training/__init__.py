"""The loop, what it keeps, and what it leaves behind."""
