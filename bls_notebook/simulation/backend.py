"""`SimulatedGPUs`: simulated GPUs as the engine sees them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from bls_notebook.devices.device import Device
from bls_notebook.records.devices import DeviceRecord

from . import importing, machine
from .array import array_of, ndarray, place

_Array = np.ndarray[Any, Any]


class SimulatedGPUs:
    """See `GPUs`. Work is done at once here, so there is never any to wait for."""

    simulated = True
    array_class: type[Any] = ndarray

    @property
    def count(self) -> int:
        return len(machine.gpus())

    def usage(self, index: int) -> DeviceRecord:
        one = machine.gpu_at(index)
        return DeviceRecord(
            one.device.name, "host memory stands in for it", True, one.used, 0, 0, one.capacity
        )

    def device_of(self, array: Any) -> Device:
        device: Device = array._memory.gpu.device
        return device

    def from_host(self, host: _Array, index: int) -> Any:
        gpu = machine.gpu_at(index)
        gpu.check(host.nbytes)
        return place(np.array(host, order="C", subok=False), gpu)

    def to_host(self, array: Any) -> _Array:
        host: _Array = array._host.copy()
        return host

    def to_gpu(self, array: Any, index: int) -> Any:
        return self.from_host(array._host, index)

    def finish(self, array: Any) -> None:
        """Nothing to wait for."""

    def unheld(self, array: Any) -> bool:
        return _counts(array) in _UNHELD

    def capsule(self, array: Any) -> object:
        return array.toDlpack()

    def array_of(self, capsule: object) -> Any:
        return array_of(capsule)

    def array_module(self) -> Any:
        from .namespace import cupy

        return cupy

    def current(self) -> int:
        return machine.current_gpu().index

    def set_current(self, index: int) -> None:
        machine.set_current(index)


def simulate(count: int, capacity: int, in_torch: bool) -> SimulatedGPUs:
    """Return simulated GPUs, so many of this capacity in bytes; `in_torch`: models see them in PyTorch."""
    if in_torch:
        importing.watch()
    machine.set_gpus(count, capacity)
    return _gpus


def _counts(array: Any) -> tuple[int, ...]:
    """How many hold each part of an array: its block, the host array over it, and what that is a view of."""
    memory, host = array._memory, array._host
    base = host.base
    if base is memory:
        return sys.getrefcount(memory), sys.getrefcount(host), 0
    if isinstance(base, np.ndarray) and base.base is memory:
        return sys.getrefcount(memory), sys.getrefcount(host), sys.getrefcount(base)
    return ()  # over a DLPack capsule, say


def _calibrate() -> frozenset[tuple[int, ...]]:
    """What `_counts` gives for arrays that nobody else holds; measured, because Pythons differ."""
    gpu = machine.SimulatedGPU(0, 1 << 20)
    plain = place(np.zeros(4), gpu)
    view = place(np.zeros(4), gpu).reshape(2, 2)
    return frozenset({_counts(plain), _counts(view)})


_UNHELD = _calibrate()
_gpus = SimulatedGPUs()
