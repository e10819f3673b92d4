"""Methods that do more than minimise a criterion, one file each."""
