"""PyTorch on simulated GPUs: in a model's code `cuda` works, on host memory.

Everybody else's PyTorch stays as it is. A tensor on a simulated GPU is PyTorch's own tensor in host memory,
of a class that says `cuda:0` (`tensors.py`). What is done with it is done by PyTorch on the CPU, with the
same bits: `docs/devices.md` says what holds and what does not. A `TorchFunctionMode` on the threads that run
models' code (`switch.py`) sees what asks for `cuda`; `functions.py`, `special.py` and `moving.py` see to all
that differs: moves, factories, mixing of devices. `cuda.py`, `streams.py` and `others.py` stand in for what
no tensor passes through.

An operation takes 5 us more than on the CPU, one of the CPU's own in a model's code 2 us more, and entering a
model's code 3 us (measured on tensors of four elements, where PyTorch takes 2 us).
"""
