"""`SimulatedGPUs`: the simulated GPUs as a device backend of the engine."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from bls_notebook.devices import WorkerSimulation
from bls_notebook.records import DeviceRecord

from . import gpu_memory
from .cupy_array import place
from .process_gpus import ProcessGPUs
from .torch import watch

_NAMES = "absent_names", "gpu_memory", "cupy_array", "cupy_cuda", "cupy_module", "process_gpus"
WORKER_MODULES = tuple(f"{__package__}.{name}" for name in _NAMES)
"""The modules of a worker's simulated GPUs, in order of import."""


class SimulatedGPUs(ProcessGPUs):
    """Implements the engine's `GPUs` protocol."""

    def usage(self, index: int) -> DeviceRecord:
        gpu = gpu_memory.gpu_at(index)
        return DeviceRecord(gpu.device.name, "simulated in host memory", True, gpu.used, 0, 0, gpu.capacity)

    def unheld(self, array: Any) -> bool:
        return _counts(array) in _UNHELD

    def for_workers(self) -> WorkerSimulation:
        gpus = gpu_memory.gpus()
        return WorkerSimulation(WORKER_MODULES, len(gpus), gpus[0].capacity)


def simulate(count: int, capacity: int, in_torch: bool) -> SimulatedGPUs:
    """Create `count` GPUs of `capacity` bytes; with `in_torch`, models see them in PyTorch, too."""
    if in_torch:
        watch()
    gpu_memory.set_gpus(count, capacity)
    return _gpus


def _counts(array: Any) -> tuple[int, ...]:
    """Return the reference counts of an array's block, of its host array, and of the host array's base."""
    memory, host = array._memory, array._host
    base = host.base
    if base is memory:
        return sys.getrefcount(memory), sys.getrefcount(host), 0
    if isinstance(base, np.ndarray) and base.base is memory:
        return sys.getrefcount(memory), sys.getrefcount(host), sys.getrefcount(base)
    return ()  # for example an array over a DLPack capsule


def _calibrate() -> frozenset[tuple[int, ...]]:
    """Measure `_counts` of arrays without other references, because Python versions differ."""
    gpu = gpu_memory.SimulatedGPU(0, 1 << 20)
    plain = place(np.zeros(4), gpu)
    view = place(np.zeros(4), gpu).reshape(2, 2)
    return frozenset({_counts(plain), _counts(view)})


_UNHELD = _calibrate()
_gpus = SimulatedGPUs()
