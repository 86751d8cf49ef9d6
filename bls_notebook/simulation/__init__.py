"""Simulated GPUs in host memory, for CuPy's and PyTorch's interfaces, on machines without a GPU."""
