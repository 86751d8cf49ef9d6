"""The simulated GPUs that there are, and which of them a thread works on.

Guarantees: which GPU is current is a thread's own, as with CUDA. GPUs that are taken away stay usable for
arrays that are still on them.
"""

from __future__ import annotations

import threading

from bls_notebook.devices.errors import DeviceError

from .memory import SimulatedGPU

__all__ = ["current_gpu", "gpu_at", "gpus", "set_current", "set_gpus"]

_gpus: tuple[SimulatedGPU, ...] = ()


class _Current(threading.local):
    index = 0


_current = _Current()


def gpus() -> tuple[SimulatedGPU, ...]:
    """Return the simulated GPUs that there are."""
    return _gpus


def set_gpus(count: int, capacity: int) -> None:
    """Have that many simulated GPUs of that capacity, in bytes.

    Those that are there already keep their arrays; a capacity below what is in use only keeps new arrays out.
    """
    global _gpus
    kept = _gpus[:count]
    for one in kept:
        one.capacity = capacity
    _gpus = (*kept, *(SimulatedGPU(i, capacity) for i in range(len(kept), count)))


def gpu_at(index: int) -> SimulatedGPU:
    """Return a simulated GPU.

    Raises
    ------
    DeviceError
        There is no such GPU; worded as CUDA's.
    """
    if not 0 <= index < len(_gpus):
        there = ", ".join(str(g.device) for g in _gpus) or "none"
        raise DeviceError(f"cudaErrorInvalidDevice: invalid device ordinal {index}; GPUs here: {there}")
    return _gpus[index]


def current_gpu() -> SimulatedGPU:
    """Return the GPU that this thread works on."""
    return gpu_at(_current.index)


def set_current(index: int) -> int:
    """Make a GPU the one that this thread works on; return the number of the one before."""
    gpu_at(index)
    before, _current.index = _current.index, index
    return before
