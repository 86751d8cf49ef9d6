"""The figures of a tensor, worked out where it lies, in parts: nothing but numbers leaves its device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bls_notebook.records.tensors import Figures

from .placed import CHUNK, chunks, sampled, working_on

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
