"""Simulated GPUs in host memory, with CuPy's and PyTorch's interfaces, for machines without a GPU."""
