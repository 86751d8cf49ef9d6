"""What is shown of a whole tensor: statistics, a histogram, and pictures of what is shaped as an image.

Computed on the tensor's device in bounded chunks; only numbers and small pictures come to the host.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.records.preview import WHOLE
from bls_notebook.records.repository import Figures

from .array_access import CHUNK, chunks, numbers, sampled, working_on
from .tensor_images import media_of, pictures

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


GLANCE = 1 << 20  # elements that are read: about a millisecond
_FEW, _SMALL = 4, 64  # pictures, and pixels of their sides
_LIGHT = 100_000  # bytes of a picture that is a file


def at_a_glance(tensor: Tensor) -> dict[str, Any]:
    """Return figures and small pictures of a tensor, as fields of its record.

    Skips tensors on a GPU, where this could take seconds, and tensors small enough to be shown whole.
    """
    array: Any = tensor._array
    if not tensor.is_cpu():
        return {}
    array = array.view(np.ndarray)
    if tensor._datatype == "BYTES":
        few = array.reshape(-1)[:_FEW].tolist()
        found = (media_of(element, _LIGHT) for element in few)
        shown = (each for each in found if each is not None and each.data)
        return {"pictures": tuple(each for each in shown if each.kind.startswith("image"))}
    if array.size <= WHOLE:
        return {}
    array, every = numbers(array, tensor._datatype, GLANCE)
    seen = figures(array, GLANCE)
    if seen is not None and every > 1:
        seen = replace(seen, every=every)
    return {"figures": seen, "pictures": pictures(array, seen, _FEW, _SMALL) if every == 1 else ()}
