"""Choosing parameters as the paper does."""
