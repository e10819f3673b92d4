"""A local web page on which people decide about suspect labels."""
