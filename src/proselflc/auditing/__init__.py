"""Which labels are wrong, how many, and what they should be."""
