"""PyTorch on simulated GPUs: in a model's code `cuda` works, in host memory; other code is unaffected.

A tensor on a simulated GPU is a PyTorch tensor in host memory, of a class that reports `cuda:0`
(`gpu_tensor.py`). PyTorch computes on the CPU, with the same bits: `docs/devices.md` lists what works. A
`TorchFunctionMode` on threads that run models' code (`installation.py`) sees every function that takes a
device; `tensor_methods.py` overrides those that differ; `cuda_functions.py` and `other_functions.py` replace
functions that take no tensors.

An operation takes 5 us more than on the CPU, a CPU operation in a model's code 2 us more, and entering a
model's code 3 us (measured with tensors of four elements, for which PyTorch takes 2 us).
"""
