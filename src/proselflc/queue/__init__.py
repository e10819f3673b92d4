"""Runs kept by their options, and the queue that workers claim them from."""
