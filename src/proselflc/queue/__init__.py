"""Runs stored by the hash of their options, and the queue from which workers claim them."""
