"""Tensors as members of a recording's file: .npy, and back; nothing that a member says is believed.

What NumPy has is written as it is; BYTES in Triton's wire form and BF16 by its bits, both told by the
manifest. A header has to be the one that NumPy writes for what the manifest says, character for character:
none is evaluated.
"""

from __future__ import annotations

import hashlib
import io
import struct
from math import prod
from typing import Any

import numpy as np

from bls_notebook.pb_utils.dtypes import (
    DTYPE_OF_DATATYPE,
    deserialize_bytes_tensor,
    from_bits,
    serialize_byte_tensor,
)
from bls_notebook.records.preview import preview

Array = np.ndarray[Any, Any]
DATATYPES = frozenset({*DTYPE_OF_DATATYPE, "BF16"})
_MOST_DIMS = 64
_LONGEST = 1 << 62


def packed(array: Array, datatype: str) -> bytes:
    """Return a tensor as the bytes of an .npy file."""
    if datatype == "BYTES":
        array = np.frombuffer(serialize_byte_tensor(array) or b"", np.uint8)
    out = io.BytesIO()
    little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    np.lib.format.write_array(out, little, version=(1, 0), allow_pickle=False)
    return out.getvalue()


def unpacked(data: bytes, datatype: str, shape: tuple[int, ...]) -> Array:
    """Return the tensor of this data type and shape that an .npy file holds, read-only; BYTES as bytes.

    Raises
    ------
    ValueError
        It holds another; one line says what.
    """
    if len(shape) > _MOST_DIMS or not all(0 <= n < _LONGEST for n in shape):
        raise ValueError(f"no tensor has the shape {str(list(shape))[:80]}")
    elements = prod(shape)
    dtype = np.dtype(
        np.uint8 if datatype == "BYTES" else np.uint16 if datatype == "BF16" else _little(datatype)
    )
    start = _start(data)
    stored = (len(data) - start,) if datatype == "BYTES" else shape
    expected = _header(dtype, stored)
    found = data[10:start].decode("latin-1").rstrip()
    if found != expected:
        raise ValueError(f"its header is {found[:100]!r}, expected {expected[:100]!r}")
    if datatype == "BYTES":
        try:
            flat = deserialize_bytes_tensor(data[start:])
        except struct.error as error:
            raise ValueError(str(error)) from None
        if flat.size != elements:
            raise ValueError(f"it has {flat.size:,} elements, expected {elements:,}")
    else:
        if len(data) - start != elements * dtype.itemsize:
            raise ValueError(f"it has {len(data) - start:,} bytes, expected {elements * dtype.itemsize:,}")
        flat = np.frombuffer(data, dtype, offset=start)
        if datatype == "BOOL" and flat.view(np.uint8).max(initial=0) > 1:
            raise ValueError("it has a BOOL that is neither 0 nor 1")
    array: Array = flat.reshape(shape)
    array.flags.writeable = False
    return array


def digest(array: Any, datatype: str) -> bytes:
    """Return a digest of a tensor's values: equal for equal bits."""
    data = packed(array, datatype) if datatype == "BYTES" or not array.flags.c_contiguous else array.data
    return hashlib.blake2b(data if array.size else b"", digest_size=16).digest()


def shown(array: Array, datatype: str) -> str:
    """Return the first elements of a tensor as text; numbers of BF16 too."""
    return preview(from_bits(array), "FP32") if datatype == "BF16" else preview(array, datatype)


def _little(datatype: str) -> np.dtype[Any]:
    return DTYPE_OF_DATATYPE[datatype].newbyteorder("<")


def _start(data: bytes) -> int:
    """Where the values begin."""
    if data[:8] != b"\x93NUMPY\x01\x00" or len(data) < 10:
        raise ValueError("it is no .npy file of version 1.0")
    start = 10 + int(struct.unpack_from("<H", data, 8)[0])
    if start > len(data):
        raise ValueError("it ends in its header")
    return start


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    return f"{{'descr': {dtype.str!r}, 'fortran_order': False, 'shape': {tuple(map(int, shape))!r}, }}"
