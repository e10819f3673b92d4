"""Runs whose labels are learned by trees or estimators, and the choice of what learns."""
