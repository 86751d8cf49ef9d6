"""Isolation of models' Python modules: each instance imports its own copies under their usual names."""
