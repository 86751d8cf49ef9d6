"""Completion with Tab: models, tensors, devices, verbs and options in the lines of the magics."""
