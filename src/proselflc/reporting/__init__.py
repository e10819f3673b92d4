"""A page about one run or several."""
