"""Shipping models to a server: exports, the local tritonserver, and the proof of equal answers."""

from bls_notebook.extending import lazily

from .capability import CAPABILITY

__getattr__, __dir__ = lazily(CAPABILITY)
