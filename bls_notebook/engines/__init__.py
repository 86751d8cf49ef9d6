"""Backends for model files: onnxruntime (ONNX) and pytorch (TorchScript and Python modules)."""

from bls_notebook.extending import lazily

from .capability import CAPABILITY

__getattr__, __dir__ = lazily(CAPABILITY)
