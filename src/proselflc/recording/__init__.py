"""Runs recorded from any training loop."""
