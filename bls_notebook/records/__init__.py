"""Recorded data: frozen and plain. Nothing here draws or runs a model."""
