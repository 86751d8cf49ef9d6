"""Tensors on their way between models: handed over, checked, reshaped, placed."""
