"""One file per format or named data set; each gives a `Dataset`."""
