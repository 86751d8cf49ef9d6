"""Simulated GPUs in host memory, with CuPy's and PyTorch's interfaces, for machines without a GPU."""

from bls_notebook.extending import lazily

from .capability import CAPABILITY

__getattr__, __dir__ = lazily(CAPABILITY)
