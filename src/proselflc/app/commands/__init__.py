"""The commands of `proselflc`: a function each, whose signature and docstring are its options."""
