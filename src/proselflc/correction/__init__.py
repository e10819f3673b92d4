"""The algebra of target modification: torch only, usable alone in anybody's training loop."""
