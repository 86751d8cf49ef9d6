"""The values of a stub's outputs: zeros, or random numbers that depend on the request alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Literal
from zlib import crc32

import numpy as np

from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE
from bls_notebook.pb_utils.tensor import Tensor

Values = Literal["zeros", "random"]
VALUES: tuple[Values, ...] = ("zeros", "random")
MOST_BYTES = 2 << 30  # of one output
_LOOKED_AT = 1 << 12  # bytes of an input that random values depend on
_ONE = 0x3F80  # 1.0 in bfloat16's bits

_Array = np.ndarray[Any, Any]


class TooLargeError(Exception):
    """An output that no stub should make."""


def made(model: str, name: str, datatype: str, shape: tuple[int, ...], seeds: Sequence[int] | None) -> Tensor:
    """Return an output with made-up values; without `seeds` they are zeros, and texts say whose they are."""
    dtype = np.dtype(np.uint16) if datatype == "BF16" else DTYPE_OF_DATATYPE[datatype]
    size = prod(shape) * dtype.itemsize
    if size > MOST_BYTES:
        raise TooLargeError(
            f"stub of '{model}', output '{name}': {datatype}{list(shape)} would take {size / 2**30:,.1f} "
            f"GiB, expected at most {MOST_BYTES >> 30}; change its dims, or send a smaller input"
        )
    if dtype.kind == "O":
        text = f"text of the stub of {model}"
        array = np.empty(shape, np.object_)
        array[...] = text.encode()
        return Tensor._of(name, array, datatype)
    if seeds is None:
        return Tensor._of(name, np.zeros(shape, dtype), datatype)
    random = np.random.default_rng([*seeds, crc32(name.encode("utf-8", "surrogatepass"))])
    if datatype == "BF16":
        array = (random.random(shape, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    elif dtype.kind == "f":
        array = random.random(shape, np.float32).astype(dtype)
    elif dtype.kind == "b":
        array = random.integers(0, 2, shape).astype(dtype)
    else:
        array = random.integers(0, 100, shape).astype(dtype)
    return Tensor._of(name, array, datatype)


def fingerprint(tensors: Sequence[Tensor]) -> int:
    """Return a number that tells requests with other inputs apart."""
    out = 0
    for tensor in tensors:
        array = tensor._array
        if not isinstance(array, np.ndarray):  # on a GPU
            continue
        flat = array.reshape(-1)[:_LOOKED_AT]
        data = repr(flat.tolist()).encode() if array.dtype.kind == "O" else flat.tobytes()
        out = crc32(data, out)
    return out


def fitted(array: _Array, rows: int | None) -> _Array:
    """Return a recorded array with so many rows: repeated, or cut off; None for as it is."""
    if rows is None or array.ndim == 0 or len(array) in (0, rows):
        return array.copy()
    return array[np.arange(rows) % len(array)]
