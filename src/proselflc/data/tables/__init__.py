"""Tables: files, the roles of their columns, and corrected copies."""
