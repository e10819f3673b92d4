"""Labels: of a run, of files, and as people decided them."""
