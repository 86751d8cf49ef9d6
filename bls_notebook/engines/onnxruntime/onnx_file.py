"""Read the signature of an ONNX file without onnxruntime.

The file is a protobuf message; the parser skips weights without reading them from the disk.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from .graph_config import Signature, TensorInfo

# onnx.proto: numbers of fields, and of element types.
_VERSION, _GRAPH = 1, 7
_INITIALIZER, _INPUT, _OUTPUT = 5, 11, 12
_NAME_OF_TENSOR = 8
_TYPES = {
    1: "FP32", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64", 8: "BYTES", 9: "BOOL",
    10: "FP16", 11: "FP64", 12: "UINT32", 13: "UINT64", 16: "BF16",
}  # fmt: skip
_Field = tuple[int, int, int, int]  # number, first byte, last byte + 1, value of a varint


def signature_in(file: Path) -> Signature | None:
    """Return the signature of a file's graph, or None if it is unknown.

    It is unknown if the file is not ONNX, or if an input or output is not a tensor or has no shape.
    """
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _signature(data)
    except (OSError, ValueError, IndexError):
        return None


def _signature(data: mmap.mmap) -> Signature:
    top = {field[0]: field for field in _fields(data, 0, len(data))}
    if _GRAPH not in top:
        raise ValueError("no ONNX")
    found: dict[int, dict[str, TensorInfo]] = {_INPUT: {}, _OUTPUT: {}}
    initialized: set[str] = set()
    for number, first, end, _ in _fields(data, *top[_GRAPH][1:3]):
        if number == _INITIALIZER:
            parts = _fields(data, first, end)
            initialized.update(_text(data, field) for field in parts if field[0] == _NAME_OF_TENSOR)
        elif number in found:
            info = _info(data, first, end)
            found[number][info.name] = info
    inputs = {name: info for name, info in found[_INPUT].items() if name not in initialized}
    may = _VERSION in top and top[_VERSION][3] >= 4  # older graphs list weights among the inputs
    others = {name: info for name, info in found[_INPUT].items() if may and name in initialized}
    if not found[_OUTPUT]:
        raise ValueError("no outputs")
    return Signature(inputs, found[_OUTPUT], others)


def _info(data: mmap.mmap, first: int, end: int) -> TensorInfo:
    """Parse an input or output: ``ValueInfoProto``."""
    of = {field[0]: field for field in _fields(data, first, end)}
    kinds = {field[0]: field for field in _fields(data, *of[2][1:3])} if 2 in of else {}
    if 1 not in kinds:
        raise ValueError("no tensor")
    tensor = {field[0]: field for field in _fields(data, *kinds[1][1:3])}
    if 2 not in tensor:
        raise ValueError("no shape")
    dims = tuple(_size(data, *dim[1:3]) for dim in _fields(data, *tensor[2][1:3]) if dim[0] == 1)
    datatype = _TYPES.get(tensor[1][3], "INVALID") if 1 in tensor else "INVALID"
    return TensorInfo(_text(data, of[1]), datatype, dims)


def _size(data: mmap.mmap, first: int, end: int) -> int:
    values = [value for number, _, _, value in _fields(data, first, end) if number == 1]
    return values[-1] if values else -1  # a named or unknown dimension


def _text(data: mmap.mmap, field: _Field) -> str:
    return data[field[1] : field[2]].decode()


def _fields(data: mmap.mmap, at: int, end: int) -> Iterator[_Field]:
    while at < end:
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        value = 0
        first = at
        if wire == 0:
            value, at = _varint(data, at)
        elif wire == 1:
            at += 8
        elif wire == 2:
            length, first = _varint(data, at)
            at = first + length
        elif wire == 5:
            at += 4
        else:
            raise ValueError("no protobuf")
        if at > end or number == 0:
            raise ValueError("no protobuf")
        yield number, first, at, value


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("no protobuf")
