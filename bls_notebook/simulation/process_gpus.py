"""`ProcessGPUs`: the simulated GPUs of one process, the kernel or a worker, whose Python may be 3.8.

Guarantees: all work is finished immediately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import gpu_memory
from .cupy_array import array_of, capsule_of, ndarray, place
from .cupy_module import cupy

if TYPE_CHECKING:
    from bls_notebook.devices import Device

    _Array = np.ndarray[Any, Any]


class ProcessGPUs:
    """The part of the engine's `GPUs` protocol that a worker needs, too."""

    simulated = True
    array_class: type[Any] = ndarray

    @property
    def count(self) -> int:
        return len(gpu_memory.gpus())

    def device_of(self, array: ndarray) -> Device:
        return array._memory.gpu.device

    def from_host(self, host: _Array, index: int) -> Any:
        gpu = gpu_memory.gpu_at(index)
        gpu.check(host.nbytes)
        return place(np.array(host, order="C", subok=False), gpu)

    def to_host(self, array: ndarray) -> _Array:
        return array._host.copy()

    def to_gpu(self, array: Any, index: int) -> Any:
        return self.from_host(array._host, index)

    def finish(self, array: Any) -> None:
        """Nothing to wait for."""

    capsule = staticmethod(capsule_of)
    array_of = staticmethod(array_of)

    def array_module(self) -> Any:
        return cupy

    def current(self) -> int:
        return gpu_memory.current_gpu().index

    def set_current(self, index: int) -> None:
        gpu_memory.set_current(index)


def begin(count: int, capacity: int) -> ProcessGPUs:
    """Simulate GPUs in a worker."""
    gpu_memory.set_gpus(count, capacity)
    return ProcessGPUs()
