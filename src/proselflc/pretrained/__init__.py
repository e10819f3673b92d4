"""Pretrained models whose weights come with ordinary Python packages, or lie on the disk."""
