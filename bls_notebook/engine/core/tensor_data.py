"""Arrays from bytes: BYTES in wire form, and data files in a model's folder, refused in Triton's words.

Requests and responses over HTTP and gRPC, warm-up, initial states and recordings use it. Mirrors
core/src/infer_request.cc (ValidateBytesInputs).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE
from bls_notebook.records.regular_file import MAX_TENSOR, read_file


class DataFileError(ValueError):
    """A file does not have the data of its tensor; `reason` is Triton's message."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def bytes_array(
    data: bytes | memoryview | list[bytes], shape: Sequence[int], of: str, model: str = "", request_id: str = ""
) -> np.ndarray[Any, Any]:
    """Return a BYTES tensor of this shape; ValueError if the data have another number of elements, or are cut.

    Parameters
    ----------
    data : bytes, memoryview or list of bytes
        The wire form, in which a length of 4 bytes precedes each element, or the elements.
    of : str
        What has the data, for the message: "inference input 'IN'".
    model, request_id : str
        Of an input that a model got.
    """
    count = prod(shape)
    if model:
        of += f" for model '{model}'"
    who = f"[request id: {request_id or '<id_unknown>'}] " if model else ""
    elements = data if isinstance(data, list) else []
    at, size = 0, 0 if isinstance(data, list) else len(data)
    while at < size and len(elements) <= count:
        if at + 4 > size:
            raise ValueError(
                f"{who}incomplete string length indicator for {of}, expecting 4 bytes but only {size - at} bytes "
                "available. Please make sure the string length indicator is in one buffer."
            )
        (length,) = struct.unpack_from("<I", data, at)  # type: ignore[arg-type]  # no list
        at += 4
        if len(elements) < count and at + length > size:  # Triton counts an element before it reads it
            raise ValueError(
                f"incomplete string data for {of.partition(' for model ')[0]}, expecting string of length {length} "
                f"but only {size - at} bytes available"
            )
        elements.append(bytes(data[at : at + length]))  # type: ignore[arg-type]
        at += length
    if len(elements) > count:
        raise ValueError(f"{who}unexpected number of string elements {count + 1} for {of}, expecting {count}")
    if len(elements) < count:
        raise ValueError(f"{who}expected {count} string elements for {of}, got {len(elements)}")
    array = np.empty(tuple(shape), np.object_)
    array.reshape(-1)[:] = elements
    return array


def array_of_file(
    file: Path, setting: str, name: str, datatype: str, shape: Sequence[int], model: str = ""
) -> np.ndarray[Any, Any]:
    """Return an input from the beginning of its file, which `setting` of the configuration names; or DataFileError."""
    try:
        data = read_file(file, MAX_TENSOR)
    except OSError as error:
        reason = f"failed to open text file for read {file}: {error.strerror}"
        raise DataFileError(f"{file} cannot be read: {error.strerror}", reason) from error
    if datatype == "BYTES":
        try:
            return bytes_array(data, shape, f"inference input '{name}'", model)
        except ValueError as error:
            raise DataFileError(f"{file.name}: {error}", str(error)) from error
    size = prod(shape) * zeros((), datatype).itemsize
    if len(data) < size:
        raise DataFileError(
            f"{file.name} has {len(data)} bytes, expected {size} for {datatype}{list(shape)}",
            f"{setting} setting expects {size} bytes, but the data provided from {file.name}only has {len(data)} bytes",
        )
    array = zeros(shape, datatype)
    fill(array, data)
    return array


def zeros(shape: Sequence[int], datatype: str) -> np.ndarray[Any, Any]:
    """Return a tensor of zeros, or of empty texts; the bits of BF16."""
    if datatype == "BYTES":
        return np.full(shape, b"", np.object_)
    return np.zeros(shape, DTYPE_OF_DATATYPE.get(datatype, np.dtype(np.uint16)))


def fill(array: np.ndarray[Any, Any], data: bytes) -> None:
    """Write the beginning of the data over an array's elements; of a BOOL, one bit counts."""
    array.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8, array.nbytes)
    if array.dtype == np.bool_:
        array.view(np.uint8)[...] &= 1
