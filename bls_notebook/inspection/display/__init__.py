"""Displays of the inspector and of the watch."""
