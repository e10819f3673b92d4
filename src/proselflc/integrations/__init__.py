"""Where other libraries meet ours; each file needs the library that it is named after."""
