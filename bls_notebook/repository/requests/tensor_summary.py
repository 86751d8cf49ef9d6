"""Summarize a tensor: statistics, a histogram, and small pictures if it is shaped like an image.

The statistics are computed on the tensor's device in bounded chunks; only numbers and small pictures are copied to the
host.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.records.responses import WHOLE, Figures

from .array_sampling import CHUNK, chunks, numbers, sampled, working_on
from .tensor_images import media_of, pictures

BINS = 40
COUNTED = 1 << 22  # most elements in a histogram


def figures(array: Any, most: int, *, each: int = 1, histogram: bool = False) -> Figures | None:
    """Return the statistics of at most `most` elements of a numeric array; None for other or empty arrays.

    An element of the array represents `each` elements of the tensor; see `numbers`.
    """
    if array.dtype.kind not in "biuf" or not array.size:
        return None
    sample, every = sampled(array, most if array.size <= most else most // 4)
    every *= each
    if sample.dtype.kind == "b":
        sample = sample.view(np.uint8)
    is_integer = sample.dtype.kind != "f"
    lows: list[Any] = []
    highs: list[Any] = []
    total, finite, nans = 0.0, 0, 0
    with working_on(sample) as xp, np.errstate(all="ignore"):
        if every > each and sample.size <= CHUNK:
            sample = xp.ascontiguousarray(sample)  # so that the strided array is read only once
        for chunk in chunks(sample):
            if not is_integer:
                is_finite = xp.isfinite(chunk)
                if int(is_finite.sum()) < chunk.size:
                    nans += int(xp.isnan(chunk).sum())
                    chunk = chunk[is_finite]
            if chunk.size:
                finite += chunk.size
                lows.append(chunk.min().item())
                highs.append(chunk.max().item())
                total += float(chunk.sum(dtype=np.float64))
        bins = _histogram(xp, sample, min(lows), max(highs)) if histogram and lows else ()
    infinities = sample.size - finite - nans
    if not lows:
        return Figures(nans=nans, infinities=infinities, every=every)
    return Figures(min(lows), max(highs), total / finite, nans, infinities, every, bins)


def _histogram(xp: Any, array: Any, low: float, high: float) -> tuple[int, ...]:
    """Count the elements in each bin; empty if all elements are equal."""
    if not (low < high and math.isfinite(float(high) - float(low))):
        return ()
    # One bin for each integer if their range is small.
    bins = min(BINS, int(high) - int(low) + 1) if array.dtype.kind != "f" else BINS
    counts = [0] * bins
    for chunk in chunks(sampled(array, COUNTED)[0]):
        if chunk.dtype.kind == "f":
            chunk = chunk[xp.isfinite(chunk)].astype(np.float64)
        chunk_counts = xp.histogram(chunk, bins=bins, range=(float(low), float(high)))[0]
        counts = [a + b for a, b in zip(counts, chunk_counts.tolist(), strict=True)]
    return tuple(counts)


GLANCE = 1 << 20  # most elements that `quick_summary` reads: about a millisecond
_FEW, _SMALL = 4, 64  # most pictures, and most pixels of their sides
_LIGHT = 100_000  # most bytes of an encoded picture


def quick_summary(tensor: Tensor) -> dict[str, Any]:
    """Return statistics and small pictures of a tensor, as fields of its record.

    Skips tensors on a GPU, where this could take seconds, and tensors that are small enough to be shown whole.
    """
    array: Any = tensor._array
    if not tensor.is_cpu():
        return {}
    array = array.view(np.ndarray)
    if tensor._datatype == "BYTES":
        media = [media_of(element, _LIGHT) for element in array.reshape(-1)[:_FEW].tolist()]
        return {"pictures": tuple(m for m in media if m is not None and m.data and m.kind.startswith("image"))}
    if array.size <= WHOLE:
        return {}
    array, every = numbers(array, tensor._datatype, GLANCE)
    statistics = figures(array, GLANCE, each=every)
    return {"figures": statistics, "pictures": pictures(array, statistics, _FEW, _SMALL) if every == 1 else ()}
