"""Read arrays on their device in bounded samples and chunks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bls_notebook.devices.registry import backend_of
from bls_notebook.pb_utils.dtypes import from_bits

CHUNK = 1 << 22  # elements that are worked on at a time: what is made of them meanwhile is bounded


@contextmanager
def working_on(array: Any) -> Iterator[Any]:
    """Give the module whose functions work on an array: NumPy, or CuPy on the array's GPU."""
    there = backend_of(array)
    if there is None:
        yield np
        return
    before = there.current()
    there.finish(array)  # whatever stream it was made on
    there.set_current(there.device_of(array).index)
    try:
        yield there.array_module()
    finally:
        there.set_current(before)


def to_host(array: Any) -> np.ndarray[Any, Any]:
    """Return an array, which should be small, in host memory."""
    there = backend_of(array)
    return np.asarray(array) if there is None else there.to_host(array.copy())


def sampled(array: Any, most: int) -> tuple[Any, int]:
    """Return an evenly spaced view of at most `most` elements, and how many elements each one stands for."""
    every = 1
    while array.size > most:
        axis = int(np.argmax(array.shape))
        array = array[(slice(None),) * axis + (slice(None, None, 2),)]
        every *= 2
    return array, every


def chunks(array: Any) -> Iterator[Any]:
    """Give an array in parts of a bounded size, without copying any."""
    if array.size <= CHUNK:
        yield array
        return
    row = array.size // array.shape[0]
    if row > CHUNK:
        for i in range(array.shape[0]):
            yield from chunks(array[i])
        return
    step = max(1, CHUNK // row)
    for start in range(0, array.shape[0], step):
        yield array[start : start + step]


def numbers(array: Any, datatype: str, most: int) -> tuple[Any, int]:
    """Return what can be computed with, and of how many elements one is in it: BF16 has to be copied."""
    if datatype != "BF16" or array.dtype.name == "bfloat16":
        return array, 1
    few, every = sampled(array, most)
    with working_on(few):
        return from_bits(few), every
