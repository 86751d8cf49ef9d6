"""Data types: Triton's and NumPy's, the wire form of BYTES tensors, and the conversion of BF16.

NumPy lacks BF16. Its bits are the upper half of an FP32's.
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]
else:
    Array = np.ndarray  # the NumPy of a worker may be too old for type arguments


def to_bits(values: Array) -> Array:
    """Return the BF16 bits of numbers as uint16, rounded to nearest, ties to even."""
    if values.dtype.name == "bfloat16":  # of ml_dtypes
        return np.asarray(values, order="C").view(np.uint16)
    with np.errstate(all="ignore"):
        single = values.astype(np.float32, order="C")
    bits = single.view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    # Rounding would overflow the bits of some NaNs.
    return np.where(np.isnan(single), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def from_bits(bits: Array) -> Array:
    """Return BF16 bits (uint16) as float32, which represents every BF16 value exactly."""
    return (bits.astype(np.uint32, order="C") << 16).view(np.float32)


class DataType(enum.IntEnum):
    """Triton's data types (`TRITONSERVER_DataType` of tritonserver.h)."""

    INVALID = 0
    BOOL = 1
    UINT8 = 2
    UINT16 = 3
    UINT32 = 4
    UINT64 = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FP16 = 10
    FP32 = 11
    FP64 = 12
    BYTES = 13
    BF16 = 14


_NUMPY: dict[DataType, type] = {
    DataType.BOOL: np.bool_, DataType.BYTES: np.object_,
    DataType.UINT8: np.uint8, DataType.UINT16: np.uint16, DataType.UINT32: np.uint32, DataType.UINT64: np.uint64,
    DataType.INT8: np.int8, DataType.INT16: np.int16, DataType.INT32: np.int32, DataType.INT64: np.int64,
    DataType.FP16: np.float16, DataType.FP32: np.float32, DataType.FP64: np.float64,
}  # fmt: skip

# BF16 has no NumPy dtype: its bits are passed as uint16, and the tensor's data type distinguishes them from UINT16.
DTYPE_OF_DATATYPE: dict[str, np.dtype[Any]] = {d.name: np.dtype(n) for d, n in _NUMPY.items()}
DATATYPE_OF_DTYPE: dict[np.dtype[Any], str] = {d: n for n, d in DTYPE_OF_DATATYPE.items()}

TRITON_STRING_TO_NUMPY: dict[str, type] = {
    f"TYPE_{'STRING' if d is DataType.BYTES else d.name}": bool if d is DataType.BOOL else n for d, n in _NUMPY.items()
}


def triton_to_numpy_type(data_type: int) -> type | None:
    """Return the NumPy type of the number of a Triton data type, or None."""
    try:
        return _NUMPY.get(DataType(data_type))
    except ValueError:
        return None


def numpy_to_triton_type(data_type: Any) -> int | None:
    """Return the number of Triton's data type for a NumPy type or dtype, or None.

    Equal to one of NumPy's types, as on a server: ``float``, ``"float32"`` and ``np.dtype("S3")`` are None.
    """
    if data_type == np.bytes_:
        return int(DataType.BYTES)
    return next((int(number) for number, kind in _NUMPY.items() if data_type == kind), None)


def triton_string_to_numpy(triton_type_string: str) -> type:
    """Return the NumPy type of a name in config.pbtxt, such as ``TYPE_FP32``; KeyError for ``TYPE_BF16`` and others."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def element_bytes(element: Any) -> bytes:
    """Return an element of a BYTES tensor as the receiver gets it: bytes unchanged, anything else as text in UTF-8."""
    return element if type(element) is bytes else str(element).encode("utf-8")


def serialize_byte_tensor(input_tensor: np.ndarray[Any, Any]) -> bytes | tuple[()] | None:
    """Return a BYTES tensor in Triton's wire form: a 4-byte little-endian length before each element.

    Parameters
    ----------
    input_tensor : numpy.ndarray
        Of dtype object (bytes, or other objects, which are converted to text) or fixed-length bytes, any shape.

    Returns
    -------
    bytes, or an empty tuple for an empty tensor, or None for any other dtype, as in Triton.
    """
    if input_tensor.size == 0:  # an AttributeError for a list, as on a server
        return ()
    input_tensor = np.asarray(input_tensor)  # a plain array, if it is of a subclass
    if input_tensor.dtype == np.object_:
        elements = [element_bytes(e) for e in input_tensor.ravel().tolist()]
    elif input_tensor.dtype.kind == "S":
        elements = input_tensor.ravel().tolist()
    else:
        return None
    return b"".join(part for e in elements for part in (struct.pack("<I", len(e)), e))


def deserialize_bytes_tensor(encoded_tensor: bytes) -> np.ndarray[Any, Any]:
    """Return the elements of a BYTES tensor in wire form, as a 1-d array of dtype object."""
    view = memoryview(encoded_tensor).cast("B") if len(encoded_tensor) else memoryview(b"")
    elements: list[bytes] = []
    offset = 0
    while offset < len(view):
        (length,) = struct.unpack_from("<I", view, offset)
        offset += 4
        if offset + length > len(view):
            raise struct.error(
                f"BYTES tensor is cut short: element {len(elements)} has {length} bytes, {len(view) - offset} are left"
            )
        elements.append(bytes(view[offset : offset + length]))
        offset += length
    out = np.empty(len(elements), np.object_)
    out[:] = elements
    return out
