"""Backends of compiled models: onnxruntime and PyTorch."""

from bls_notebook.extending import lazily

from .capability import CAPABILITY

__getattr__, __dir__ = lazily(CAPABILITY)
