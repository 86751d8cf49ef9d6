"""Tensors on their way between models: isolation, checks, reshapes and devices."""
