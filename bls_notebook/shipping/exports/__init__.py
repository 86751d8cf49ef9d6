"""Exports: a model repository in Triton's layout, with the files of its deployment."""
