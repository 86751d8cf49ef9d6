"""Displays of what tests are made of."""
