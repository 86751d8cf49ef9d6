"""Displays of the core's records and lists of records."""
