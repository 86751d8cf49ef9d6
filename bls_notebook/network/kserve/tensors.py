"""Tensors in the binary format of KServe v2 (HTTP and gRPC): little-endian, C order, texts with a length prefix.

A client's malformed input raises `ProtocolError` with Triton's text, a server's malformed output `AnswerError`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from typing import Any, NoReturn

import numpy as np

from bls_notebook.devices import to_cpu
from bls_notebook.engine import bytes_array
from bls_notebook.network.limits import DIMENSIONS, ELEMENTS, INLINE_BYTES, STRINGS
from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE, serialize_byte_tensor
from bls_notebook.pb_utils.tensor import Tensor

from .errors import ProtocolError, refuse
from .shared_memory import Part

Buffer = bytes | memoryview

DTYPES = {name: dtype for name, dtype in DTYPE_OF_DATATYPE.items() if name != "BYTES"}
DTYPES["BF16"] = np.dtype(np.uint16)  # the raw bits


class AnswerError(ValueError):
    """A server's response violates the protocol; the message is one line."""


def on_cpu(tensor: Tensor) -> Any:
    """Return the array of a tensor as a NumPy array."""
    array: Any = tensor._array
    if isinstance(array, np.ndarray):
        return array
    return array.on_cpu() if tensor._datatype == "BYTES" else to_cpu(array)


def bytes_of(tensor: Tensor) -> Buffer:
    """Return the bytes of a tensor in C order, on the CPU; the array's own memory if possible."""
    array = on_cpu(tensor)
    if tensor._datatype == "BYTES":
        return serialize_byte_tensor(array) or b""
    if array.nbytes <= INLINE_BYTES:  # faster than a view
        small: bytes = array.tobytes()
        return small
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    view: memoryview = array.reshape(-1).view(np.uint8).data
    return view


def values_of(array: Any, datatype: str) -> list[Any]:
    """Return the elements of a tensor's array in C order; UnicodeDecodeError for BYTES that are not UTF-8."""
    elements: list[Any] = array.reshape(-1).tolist()
    if datatype != "BYTES":
        return elements
    return [element.decode() if isinstance(element, bytes) else str(element) for element in elements]


def count_of(shape: Sequence[int]) -> int:
    """Return the number of elements of a shape; ValueError if the shape is invalid or too large."""
    if len(shape) > DIMENSIONS:  # first: multiplying very many sizes is slow
        raise ValueError(f"has {len(shape)} dimensions; the limit is {DIMENSIONS}")
    if shape and min(shape) < 0:
        raise ValueError(f"has the shape {list(shape)}; sizes must not be negative")
    count = prod(shape)
    if count > ELEMENTS or (not count and max(shape) > ELEMENTS):
        raise ValueError(f"has the shape {list(shape)}, which has too many elements")
    return count


def output_tensor(name: str, datatype: str, shape: Sequence[int], raw: Buffer) -> Tensor:
    """Return an output as a copy of its bytes; AnswerError for a wrong shape, data type or number of bytes."""
    sizes, count = _output_shape(name, shape)
    if datatype == "BYTES":
        try:
            return Tensor._of(name, bytes_array(raw, sizes, f"output '{name}'"), datatype)
        except ValueError as error:
            raise AnswerError(str(error)) from error
    dtype = _output_dtype(datatype)
    if len(raw) != count * dtype.itemsize:
        expected = f"expected {count * dtype.itemsize} for {datatype}{sizes}"
        raise AnswerError(f"output '{name}': {len(raw)} bytes, {expected}")
    array = np.frombuffer(raw, dtype).copy() if len(raw) else np.empty(0, dtype)
    return _reshaped(name, array, sizes, datatype)


def output_tensor_of_list(name: str, datatype: str, shape: Sequence[int], elements: Sequence[Any]) -> Tensor:
    """Return an output from its elements in JSON or protobuf, flat or nested; AnswerError as in `output_tensor`."""
    sizes, _ = _output_shape(name, shape)
    if datatype == "BF16":
        raise AnswerError(f"output '{name}': JSON cannot carry BF16; expected binary data")
    try:
        if datatype == "BYTES":
            texts = [e.encode() if isinstance(e, str) else e for e in flat(elements)]
            if not all(isinstance(e, bytes) for e in texts):
                raise TypeError("elements that are not text")
            array = np.empty(len(texts), np.object_)
            array[:] = texts
        else:
            array = np.array(elements, _output_dtype(datatype))
        return _reshaped(name, array, sizes, datatype)
    except AnswerError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise AnswerError(f"output '{name}': {error}; expected {datatype}{sizes}") from error


def flat(elements: Sequence[Any], most: int = sys.maxsize) -> list[Any]:
    """Return the elements of nested lists; ValueError if one is in `most` or more lists."""
    if list not in set(map(type, elements)):
        return list(elements)
    out: list[Any] = []
    levels = [iter(elements)]
    while levels:
        for element in levels[-1]:
            if len(levels) >= most:
                raise ValueError(f"JSON nesting depth exceeds maximum allowed limit ({most})")
            if isinstance(element, list):
                levels.append(iter(element))
                break
            out.append(element)
        else:
            levels.pop()
    return out


def _reshaped(name: str, array: np.ndarray[Any, Any], sizes: list[int], datatype: str) -> Tensor:
    try:
        return Tensor._of(name, array if array.shape == (*sizes,) else array.reshape(sizes), datatype)
    except ValueError as error:
        raise AnswerError(f"output '{name}': {error}; expected {datatype}{sizes}") from error


def _output_shape(name: str, shape: Sequence[int]) -> tuple[list[int], int]:
    if not isinstance(name, str):
        raise AnswerError(f"the name of an output is {name!r}, which is not text")
    sizes = [*map(int, shape)]
    try:
        return sizes, count_of(sizes)
    except ValueError as error:
        raise AnswerError(f"output '{name}' {error}") from error


def _output_dtype(datatype: str) -> np.dtype[Any]:
    if datatype not in DTYPES:
        raise AnswerError(f"the KServe v2 protocol has no data type {datatype!r}")
    return DTYPES[datatype]


class WrongDataError(ProtocolError):
    """The data of an input do not have the size of its shape. Triton checks this after the shapes of all inputs."""


def _wrong_data(message: str) -> NoReturn:
    raise WrongDataError(message)


def input_tensor(
    model: str, request_id: str, name: str, datatype: str, shape: Sequence[int], data: Buffer | list[bytes] | Part
) -> Tensor:
    """Return an input from its bytes, or from a list of BYTES; ProtocolError for a wrong shape or data type.

    WrongDataError: the data do not have the size of the shape.
    Small numeric inputs share the memory of `data`.
    """
    count = elements_of(name, shape)
    if datatype == "BYTES":
        if count > STRINGS:
            refuse(f"input '{name}' has {count:,} elements; the limit for BYTES is {STRINGS:,}")
        data = data.read() if isinstance(data, Part) else data
        try:
            array = bytes_array(data, shape, f"inference input '{name}'", model, request_id)
        except ValueError as error:
            _wrong_data(str(error))
    else:
        dtype = dtype_of(name, datatype)
        expected = count * dtype.itemsize
        assert not isinstance(data, list)  # only elements of BYTES are a list
        if len(data) != expected:
            _wrong_data(
                f"[request id: {request_id or '<id_unknown>'}] input byte size mismatch for input '{name}' for model "
                f"'{model}'. Expected {expected}, got {len(data)}"
            )
        if isinstance(data, Part):  # only now, because its size is the client's
            data = data.read()
        array = (np.frombuffer(data, dtype) if expected else np.empty(0, dtype)).reshape(tuple(shape))
        if expected > INLINE_BYTES:  # here, perhaps in a thread: the engine passes on its own writable memory uncopied
            array = array.copy()
    return Tensor._of(name, array, datatype)


def dtype_of(name: str, datatype: str) -> np.dtype[Any]:
    """Return the NumPy type of a data type other than BYTES; uint16 for the bits of BF16."""
    return DTYPES[datatype] if datatype in DTYPES else refuse(f"invalid datatype for input {name}")


def elements_of(name: str, shape: Sequence[int]) -> int:
    try:
        return count_of(shape)
    except ValueError as error:
        refuse(f"input '{name}' {error}")
