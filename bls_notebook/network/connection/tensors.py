"""Tensors as they travel: the KServe v2 protocol's binary form, and its JSON form. Pure."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE, deserialize_bytes_tensor, serialize_byte_tensor
from bls_notebook.pb_utils.tensor import Tensor

Buffer = bytes | memoryview


class AnswerError(ValueError):
    """What a server answered is not what the protocol says; the text is one line."""


def raw_of(tensor: Tensor) -> Buffer:
    """Return the bytes of a tensor on the CPU, in C order; those of its array, where they can be lent."""
    if tensor._datatype == "BYTES":
        return serialize_byte_tensor(tensor._array) or b""
    array = tensor._array
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return array.reshape(-1).view(np.uint8).data if array.size else b""


def tensor_of(name: str, datatype: str, shape: Sequence[int], raw: Buffer) -> Tensor:
    """Return a tensor with memory of its own, of its bytes.

    Raises AnswerError: an unknown data type, or not as many bytes as the shape takes.
    """
    sizes = _checked(name, shape)
    if datatype == "BYTES":
        try:
            array = deserialize_bytes_tensor(bytes(raw))
        except struct.error as error:
            raise AnswerError(f"output '{name}': {error}") from error
        if array.size != prod(sizes):
            raise AnswerError(f"output '{name}': {array.size} elements, expected {prod(sizes)} for {sizes}")
        return _tensor(name, array, sizes, datatype)
    dtype = _dtype(datatype)
    if len(raw) != prod(sizes) * dtype.itemsize:
        raise AnswerError(
            f"output '{name}': {len(raw)} bytes, expected {prod(sizes) * dtype.itemsize} for "
            f"{datatype}{sizes}"
        )
    array = np.frombuffer(raw, dtype).copy() if len(raw) else np.empty(0, dtype)
    return _tensor(name, array, sizes, datatype)


def listed(tensor: Tensor) -> list[Any]:
    """Return a tensor's elements for JSON, in C order.

    Raises AnswerError: JSON has no form of it: BF16, and bytes that are no UTF-8.
    """
    if tensor._datatype == "BF16":
        raise AnswerError(f"input '{tensor._name}': BF16 has no form in JSON, which is all the server takes")
    if tensor._datatype != "BYTES":
        elements: list[Any] = tensor._array.reshape(-1).tolist()
        return elements
    try:
        return [e.decode() if isinstance(e, bytes) else str(e) for e in tensor._array.reshape(-1).tolist()]
    except UnicodeDecodeError as error:
        problem = f"input '{tensor._name}': {error}; the server takes text alone"
        raise AnswerError(problem) from error


def tensor_of_list(name: str, datatype: str, shape: Sequence[int], elements: Sequence[Any]) -> Tensor:
    """Return a tensor of its elements as JSON has them, or protobuf; nested lists are taken too."""
    sizes = _checked(name, shape)
    dtype = _dtype(datatype)
    if datatype == "BF16":
        raise AnswerError(f"output '{name}': BF16 has no form in JSON; expected binary data")
    try:
        if datatype == "BYTES":
            flat = [e.encode() if isinstance(e, str) else e for e in _flat(elements)]
            if not all(isinstance(e, bytes) for e in flat):
                raise TypeError("elements that are no text")
            array = np.empty(len(flat), np.object_)
            array[:] = flat
        else:
            array = np.array(elements, dtype)
        return _tensor(name, array, sizes, datatype)
    except AnswerError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise AnswerError(f"output '{name}': {error}; expected {datatype}{sizes}") from error


def _flat(elements: Sequence[Any]) -> list[Any]:
    if any(isinstance(e, (list, tuple)) for e in elements):
        return [each for e in elements for each in _flat(e if isinstance(e, (list, tuple)) else [e])]
    return list(elements)


def _tensor(name: str, array: np.ndarray[Any, Any], sizes: list[int], datatype: str) -> Tensor:
    try:
        return Tensor._of(name, array if array.shape == (*sizes,) else array.reshape(sizes), datatype)
    except ValueError as error:  # more dimensions, or larger ones, than NumPy has
        raise AnswerError(f"output '{name}': {error}; expected {datatype}{sizes}") from error


def _checked(name: str, shape: Sequence[int]) -> list[int]:
    if not isinstance(name, str):
        raise AnswerError(f"the name of an output is {name!r}, which is no text")
    sizes = [*map(int, shape)]
    if min(sizes, default=0) < 0:
        raise AnswerError(f"output '{name}': the shape {sizes} has negative sizes")
    return sizes


def _dtype(datatype: str) -> np.dtype[Any]:
    if datatype == "BF16":
        return np.dtype(np.uint16)
    found = DTYPE_OF_DATATYPE.get(datatype)
    if found is None:
        raise AnswerError(f"the data type {datatype!r} is none of the KServe v2 protocol's")
    return found
