"""Inputs as a pretrained model sees them: computed once, kept, and learned from by a small head."""
