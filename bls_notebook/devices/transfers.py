"""Transfers of arrays between devices, copies on one device, and sizes of tensors.

Guarantees: pending work on a returned array is complete, on any stream. A copy has no other references. The allocation
log records transfers, and copies on a GPU. Arrays on a GPU are CuPy's or simulated ones, arrays on the CPU are NumPy's.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter_ns
from typing import Any

import numpy as np

from .allocation_log import moved as record_move
from .allocation_log import text_bytes
from .registry import backend_of, need_gpu

_Array = np.ndarray[Any, Any]


def to_cpu(array: Any) -> _Array:
    """Return a copy in host memory of an array on a GPU; return an array of NumPy unchanged."""
    there = None if isinstance(array, np.ndarray) else backend_of(array)
    if there is None:
        return array  # type: ignore[no-any-return]
    started = perf_counter_ns()
    host = there.to_host(array)
    record_move("transfer", array, host, perf_counter_ns() - started)
    return host


def to_gpu(array: Any, index: int) -> Any:
    """Return a copy on a GPU, or the array itself if it is on that GPU; raise NoDeviceError or MemoryError."""
    to = need_gpu(index)
    there = None if isinstance(array, np.ndarray) else backend_of(array)
    started = perf_counter_ns()
    if there is to:
        if to.device_of(array).index == index:
            return array
        moved = to.to_gpu(array, index)
    else:
        moved = to.from_host(array if there is None else there.to_host(array), index)
    record_move("transfer", array, moved, perf_counter_ns() - started)
    return moved


def copied(array: Any) -> Any:
    """Return a copy of an array on its device; raise MemoryError if it does not fit."""
    there = backend_of(array)
    if there is None:
        return np.array(array, subok=False)
    copy = there.to_gpu(array, there.device_of(array).index)
    record_move("copy", array, copy)
    return copy


def nbytes(tensors: Iterable[Any]) -> int:
    """Return the bytes of tensors in wire form."""
    size = 0
    for tensor in tensors:
        size += tensor._array.nbytes if tensor._datatype != "BYTES" else text_bytes(tensor._array)
    return size
