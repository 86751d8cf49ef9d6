"""`SimulatedGPUs`: the simulated GPUs as a device backend of the engine."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from bls_notebook.devices import Device
from bls_notebook.records import DeviceRecord

from . import gpu_memory
from .cupy_array import array_of, capsule_of, ndarray, place
from .torch import watch

_Array = np.ndarray[Any, Any]


class SimulatedGPUs:
    """Implements the engine's `GPUs` protocol; all work finishes immediately."""

    simulated = True
    array_class: type[Any] = ndarray

    @property
    def count(self) -> int:
        return len(gpu_memory.gpus())

    def usage(self, index: int) -> DeviceRecord:
        gpu = gpu_memory.gpu_at(index)
        return DeviceRecord(gpu.device.name, "simulated in host memory", True, gpu.used, 0, 0, gpu.capacity)

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

    def unheld(self, array: Any) -> bool:
        return _counts(array) in _UNHELD

    capsule = staticmethod(capsule_of)
    array_of = staticmethod(array_of)

    def array_module(self) -> Any:
        from .cupy_module import cupy

        return cupy

    def current(self) -> int:
        return gpu_memory.current_gpu().index

    def set_current(self, index: int) -> None:
        gpu_memory.set_current(index)


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
