"""Tensors as the bytes that both protocols carry: little-endian, rows first, text with its length before."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from bls_notebook.devices.transfers import to_cpu
from bls_notebook.network.kserve.rest import NUMPY_OF
from bls_notebook.pb_utils import Tensor
from bls_notebook.pb_utils.dtypes import serialize_byte_tensor

from .failures import INVALID, refuse

_MOST = 1 << 62  # elements; far beyond any memory, and what shapes are multiplied up to
BF16 = np.dtype(np.uint16)  # its bits


def tensor_of(
    model: str, request_id: str, name: str, datatype: str, shape: Sequence[int], data: bytes | memoryview
) -> Tensor:
    """Return a tensor of its bytes, which are checked against its shape; else a RefusedError names the model.

    The data is not kept: the tensor has memory of its own once it is sent.
    """
    if len(shape) > 32:  # what NumPy takes everywhere
        refuse(f"input '{name}' for model '{model}' has {len(shape)} dimensions; 32 are the most")
    count = elements_of(name, shape)
    if datatype == "BYTES":
        elements = _elements(model, request_id, name, count, data)
        array: np.ndarray[Any, Any] = np.empty(len(elements), np.object_)
        array[:] = elements
    else:
        dtype = dtype_of(name, datatype)
        expected = count * dtype.itemsize
        if len(data) != expected:
            refuse(
                f"{_request(request_id)} input byte size mismatch for input '{name}' for model '{model}'. "
                f"Expected {expected}, got {len(data)}"
            )
        array = np.frombuffer(data, dtype) if expected else np.empty(0, dtype)
    return Tensor._of(name, array.reshape(tuple(shape)), datatype)


def dtype_of(name: str, datatype: str) -> np.dtype[Any]:
    """Return the NumPy type of a data type that is not text; that of BF16's bits."""
    dtype = BF16 if datatype == "BF16" else NUMPY_OF.get(datatype)
    if dtype is None:
        refuse(f"invalid datatype for input {name}")
    return dtype


def elements_of(name: str, shape: Sequence[int]) -> int:
    """Return how many elements a shape has."""
    if any(size < 0 for size in shape):
        refuse(f"input '{name}' has the shape {list(shape)}; sizes are whole numbers from 0 on")
    count = prod(shape)
    if count > _MOST or any(size > _MOST for size in shape):
        refuse(f"input '{name}' has the shape {list(shape)}, more elements than there can be")
    return count


def bytes_of(tensor: Tensor) -> bytes:
    """Return the bytes of an output, wherever it is."""
    array: Any = tensor._array
    if not isinstance(array, np.ndarray):
        array = array.on_cpu() if tensor._datatype == "BYTES" else to_cpu(array)
    if tensor._datatype == "BYTES":
        return bytes(serialize_byte_tensor(array) or b"")
    return array.tobytes()  # type: ignore[no-any-return]


def _elements(model: str, request_id: str, name: str, count: int, data: bytes | memoryview) -> list[bytes]:
    """The elements of text, of which there have to be so many."""
    out: list[bytes] = []
    at, size = 0, len(data)
    while at < size:
        if at + 4 > size:
            refuse(
                f"{_request(request_id)} incomplete string length indicator for inference input '{name}' for "
                f"model '{model}', expecting 4 bytes but only {size - at} bytes available. Please make sure "
                "the string length indicator is in one buffer."
            )
        (length,) = struct.unpack_from("<I", data, at)
        at += 4
        if at + length > size:
            refuse(
                f"incomplete string data for inference input '{name}', expecting string of length {length} "
                f"but only {size - at} bytes available"
            )
        if len(out) == count:
            refuse(
                f"{_request(request_id)} unexpected number of string elements {count + 1} for inference "
                f"input '{name}' for model '{model}', expecting {count}"
            )
        out.append(bytes(data[at : at + length]))
        at += length
    if len(out) != count:
        refuse(
            f"{_request(request_id)} expected {count} string elements for inference input '{name}' for model "
            f"'{model}', got {len(out)}",
            INVALID,
        )
    return out


def _request(request_id: str) -> str:
    return f"[request id: {request_id or '<id_unknown>'}]"
