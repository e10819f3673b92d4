"""What every page is made of: drawings, tables, names and HTML."""
