"""Read arrays on their device in bounded samples and chunks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bls_notebook.devices.registry import backend_of
from bls_notebook.pb_utils.dtypes import from_bits

CHUNK = 1 << 22  # elements per chunk, which bounds the memory of intermediate results


@contextmanager
def working_on(array: Any) -> Iterator[Any]:
    """Yield the module for computing on an array: NumPy, or CuPy with the array's GPU as the current device."""
    backend = backend_of(array)
    if backend is None:
        yield np
        return
    before = backend.current()
    backend.finish(array)  # wait for pending work on any stream
    backend.set_current(backend.device_of(array).index)
    try:
        yield backend.array_module()
    finally:
        backend.set_current(before)


def to_host(array: Any) -> np.ndarray[Any, Any]:
    """Return an array in host memory; meant for small arrays."""
    backend = backend_of(array)
    return np.asarray(array) if backend is None else backend.to_host(array.copy())


def sampled(array: Any, most: int) -> tuple[Any, int]:
    """Return an evenly spaced view of at most `most` elements, and the number of elements that each represents."""
    every = 1
    while array.size > most:
        axis = int(np.argmax(array.shape))
        array = array[(slice(None),) * axis + (slice(None, None, 2),)]
        every *= 2
    return array, every


def chunks(array: Any) -> Iterator[Any]:
    """Yield views of an array of at most `CHUNK` elements each."""
    if array.size <= CHUNK:
        yield array
        return
    row = array.size // array.shape[0]
    if row > CHUNK:
        for i in range(array.shape[0]):
            yield from chunks(array[i])
        return
    step = max(1, CHUNK // row)
    yield from (array[start : start + step] for start in range(0, array.shape[0], step))


def numbers(array: Any, datatype: str, most: int) -> tuple[Any, int]:
    """Return an array for computing, and the number of elements that each of its elements represents.

    BF16 in the form of 16-bit integers is converted, of which only a sample of `most` elements is taken.
    """
    if datatype != "BF16" or array.dtype.name == "bfloat16":
        return array, 1
    sample, every = sampled(array, most)
    with working_on(sample):
        return from_bits(sample), every
