"""Files: written whole, opened only if regular, locked, and checked against a manifest."""
