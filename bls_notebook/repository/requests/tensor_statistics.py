"""Statistics of a tensor, computed on its device in bounded chunks; only numbers come to the host."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bls_notebook.devices.registry import backend_of
from bls_notebook.records.tensors import Figures

CHUNK = 1 << 22  # elements that are worked on at a time: what is made of them meanwhile is bounded
BINS = 40
COUNTED = 1 << 22  # elements that a histogram is made of


def figures(array: Any, most: int, *, histogram: bool = False) -> Figures | None:
    """Return the figures of a numeric array, of at most so many elements of it; None where it has none."""
    if array.dtype.kind not in "biuf" or not array.size:
        return None
    seen, every = sampled(array, most if array.size <= most else most // 4)
    if seen.dtype.kind == "b":
        seen = seen.view(np.uint8)
    whole = seen.dtype.kind != "f"
    lows: list[Any] = []
    highs: list[Any] = []
    total, finite, nans = 0.0, 0, 0
    with working_on(seen) as xp, np.errstate(all="ignore"):
        if every > 1 and seen.size <= CHUNK:
            seen = xp.ascontiguousarray(seen)  # reading it here and there once is enough
        for chunk in chunks(seen):
            if not whole:
                good = xp.isfinite(chunk)
                count = int(good.sum())
                if count < chunk.size:
                    nans += int(xp.isnan(chunk).sum())
                    chunk = chunk[good]
            if chunk.size:
                finite += chunk.size
                lows.append(chunk.min().item())
                highs.append(chunk.max().item())
                total += float(chunk.sum(dtype=np.float64))
        bins = _histogram(xp, seen, min(lows), max(highs)) if histogram and lows else ()
    infinities = seen.size - finite - nans
    if not lows:
        return Figures(nans=nans, infinities=infinities, every=every)
    return Figures(min(lows), max(highs), total / finite, nans, infinities, every, bins)


def _histogram(xp: Any, array: Any, low: float, high: float) -> tuple[int, ...]:
    """How many elements lie in each bin; none where they are all the same."""
    if not (low < high and math.isfinite(float(high) - float(low))):
        return ()
    # Of whole numbers that are few, each has a bin.
    number = min(BINS, int(high) - int(low) + 1) if array.dtype.kind != "f" else BINS
    counts = [0] * number
    for chunk in chunks(sampled(array, COUNTED)[0]):
        if chunk.dtype.kind == "f":
            chunk = chunk[xp.isfinite(chunk)].astype(np.float64)
        found = xp.histogram(chunk, bins=number, range=(float(low), float(high)))[0]
        counts = [a + b for a, b in zip(counts, found.tolist(), strict=True)]
    return tuple(counts)


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
    """Return a view of at most so many elements, evenly taken, and of how many one of them is."""
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
