"""Requests from outside any model, and their responses."""
