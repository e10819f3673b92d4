"""Runs made from what another training loop shows of its examples."""
