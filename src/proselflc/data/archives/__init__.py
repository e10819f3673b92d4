"""Archives of published data sets: fetched, unpacked and read as hostile files."""
