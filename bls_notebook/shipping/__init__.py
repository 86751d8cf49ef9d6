"""Shipping models to a server: exports, the local tritonserver, and the proof of equal answers."""
