"""BF16, which NumPy lacks: numbers to its bits and back. The bits are the upper half of an FP32's."""

from __future__ import annotations

from typing import Any

import numpy as np

_Array = np.ndarray[Any, Any]


def to_bits(values: _Array) -> _Array:
    """Return the bits of numbers as uint16, rounded to the nearest and to even."""
    if values.dtype.name == "bfloat16":  # of ml_dtypes
        return np.asarray(values, order="C").view(np.uint16)
    with np.errstate(all="ignore"):
        single = values.astype(np.float32, order="C")
    bits = single.view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    # Rounding would carry a NaN of many ones over to zero.
    return np.where(np.isnan(single), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def from_bits(bits: _Array) -> _Array:
    """Return float32, which holds every value of BF16."""
    return (bits.astype(np.uint32, order="C") << 16).view(np.float32)
