"""The command line: commands and their options."""
