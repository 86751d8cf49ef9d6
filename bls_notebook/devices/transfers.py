"""Move and copy arrays: across devices, and on one device if the sender keeps its array; sizes of tensors.

Guarantees: a returned array is finished, whatever stream it was made on, and nobody else has it; the
observer hears of each move. Arrays of a GPU are CuPy's or simulated ones, arrays of the CPU are NumPy's.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter_ns
from typing import Any

import numpy as np

from . import observer
from .device import CPU, Device
from .registry import backend_of, need_gpu

_Array = np.ndarray[Any, Any]


def device_of(array: Any) -> Device:
    """Return where an array is; anything that is of no GPU is on the CPU."""
    there = None if isinstance(array, np.ndarray) else backend_of(array)
    return CPU if there is None else there.device_of(array)


def to_cpu(array: Any) -> _Array:
    """Return a copy in host memory of an array on a GPU; one of NumPy itself."""
    there = None if isinstance(array, np.ndarray) else backend_of(array)
    if there is None:
        return array  # type: ignore[no-any-return]
    started = perf_counter_ns()
    host = there.to_host(array)
    observer.moved("transfer", array, host, perf_counter_ns() - started)
    return host


def to_gpu(array: Any, index: int) -> Any:
    """Return a copy on a GPU; the array itself where it is there.

    A NoDeviceError says that there is no such GPU, a MemoryError that it has not that much memory left.
    """
    to = need_gpu(index)
    there = None if isinstance(array, np.ndarray) else backend_of(array)
    started = perf_counter_ns()
    if there is to:
        if to.device_of(array).index == index:
            return array
        moved = to.to_gpu(array, index)
    else:
        moved = to.from_host(array if there is None else there.to_host(array), index)
    observer.moved("transfer", array, moved, perf_counter_ns() - started)
    return moved


def copied(array: Any) -> Any:
    """Return a copy of an array, on its device; a MemoryError where there is no room."""
    there = backend_of(array)
    if there is None:
        return np.array(array, subok=False)
    copy = there.to_gpu(array, there.device_of(array).index)
    observer.moved("copy", array, copy)
    return copy


def nbytes(tensors: Iterable[Any]) -> int:
    """Return the size of tensors, in bytes, as they are sent."""
    size = 0
    for tensor in tensors:
        size += tensor._array.nbytes if tensor._datatype != "BYTES" else text_bytes(tensor._array)
    return size


def text_bytes(array: Any) -> int:
    """Return what the elements of a BYTES tensor take: each its length, and four bytes for that.

    So Triton holds them. Elements that are no bytes yet count by their number of characters.
    """
    if not hasattr(array, "tolist"):  # on a GPU it is held so
        return int(array.nbytes)
    elements = array.tolist() if array.ndim == 1 else array.reshape(-1).tolist()
    try:
        return 4 * len(elements) + sum(map(len, elements))
    except TypeError:
        return 4 * len(elements) + sum(len(e) for e in elements if isinstance(e, (bytes, str)))
