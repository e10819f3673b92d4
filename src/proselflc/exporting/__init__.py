"""Corrected labels as files."""
