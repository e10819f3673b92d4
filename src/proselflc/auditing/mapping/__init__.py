"""A map of the examples: points in a plane, near each other where the examples look alike."""
