"""Everything a user has, read safely, corrupted reproducibly, served fast. Knows no method."""
