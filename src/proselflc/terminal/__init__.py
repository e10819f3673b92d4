"""Progress, signals and output of a command in a terminal."""
