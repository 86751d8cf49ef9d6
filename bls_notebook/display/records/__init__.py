"""The displays of single records and of lists of them, a module each."""
