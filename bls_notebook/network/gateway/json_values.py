"""Values of JSON as tensors, and tensors as values; what does not fit is refused in Triton's words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from bls_notebook.pb_utils import Tensor

from .failures import refuse
from .tensors import bytes_of, dtype_of, elements_of

_KINDS: dict[type, str] = {
    bool: "boolean", str: "string", list: "array", dict: "object", int: "unsigned-integer", float: "double",
}  # fmt: skip
_IN_BINARY_ONLY = ("FP16", "BF16")


def parsed(body: bytes | bytearray | memoryview) -> Any:
    """Return what JSON text says."""
    try:
        return json.loads(bytes(body))
    except (ValueError, RecursionError) as error:  # also text that is no UTF-8, and numbers without end
        why = getattr(error, "msg", "") or str(error).partition("\n")[0]
        at = getattr(error, "pos", getattr(error, "start", 0))
        refuse(f"failed to parse the request JSON buffer: {why} at {at}")


def member(found: Any, name: str, kind: type, default: Any = ..., what: str | None = None) -> Any:
    """Return a member of an object, which has to be of a kind; `default` where it is not there."""
    what = f"Unable to parse '{name}': " if what is None else what
    value = found.get(name, ...) if isinstance(found, dict) else ...
    if value is ...:
        if default is not ...:
            return default
        refuse(f"{what}attempt to access non-existing object member '{name}'")
    if kind is int and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 64):
        refuse(f"{what}attempt to access JSON non-unsigned-integer as unsigned-integer")
    if not isinstance(value, kind):
        refuse(f"{what}attempt to access JSON non-{_KINDS[kind]} as {_KINDS[kind]}")
    return value


def flattened(data: Any) -> list[Any]:
    """Return the elements of nested lists, in order."""
    if not isinstance(data, list):
        refuse("Unable to parse 'data': attempt to access JSON non-array as array")
    flat: list[Any] = data
    while any(isinstance(each, list) for each in flat):
        flat = [inner for each in flat for inner in (each if isinstance(each, list) else (each,))]
    return flat


def tensor_of_values(name: str, datatype: str, shape: Sequence[int], values: list[Any]) -> Tensor:
    """Return a tensor of elements, in order."""
    if datatype in _IN_BINARY_ONLY:
        refuse(
            f"receiving {datatype} data via JSON is not supported. Please use the binary data format for "
            f"input {name}"
        )
    count = elements_of(name, shape)
    dtype = np.dtype(object) if datatype == "BYTES" else dtype_of(name, datatype)
    if len(values) != count:
        refuse("Unable to parse 'data': Shape does not match true shape of 'data' field")
    kinds = set(map(type, values))
    if datatype == "BYTES":
        if kinds - {str}:
            refuse("Unable to parse JSON bytes array: attempt to access JSON non-string as string")
        array = np.empty(count, object)
        array[:] = [value.encode("utf-8", "surrogatepass") for value in values]
    elif datatype == "BOOL":
        _only(kinds, {bool}, "boolean", "boolean")
        array = np.array(values, dtype)
    elif dtype.kind == "f":
        _only(kinds, {int, float}, "number", "double")
        with np.errstate(over="ignore"):
            try:
                array = np.array(values, np.float64).astype(dtype)
            except OverflowError:
                refuse("Unable to parse 'data': attempt to access JSON non-number as double")
    else:
        kind = "unsigned-integer" if dtype.kind == "u" else "signed-integer"
        _only(kinds, {int}, kind, kind)
        wide = np.uint64 if dtype.kind == "u" else np.int64
        try:
            array = np.array(values, wide).astype(dtype)  # what is too large for it wraps, as on Triton
        except OverflowError:
            refuse(f"Unable to parse 'data': attempt to access JSON non-{kind} as {kind}")
    return Tensor._of(name, array.reshape(tuple(shape)), datatype)


def _only(kinds: set[type], allowed: set[type], got: str, wanted: str) -> None:
    if kinds - allowed:
        refuse(f"Unable to parse 'data': attempt to access JSON non-{got} as {wanted}")


def values_of(tensor: Tensor) -> list[Any]:
    """Return the elements of an output, in order, as JSON has them."""
    if tensor._datatype in _IN_BINARY_ONLY:
        refuse(
            f"sending {tensor._datatype} data via JSON is not supported. Please use the binary data format "
            f"for output '{tensor._name}'"
        )
    array: Any = tensor._array
    if tensor._datatype != "BYTES":
        if not isinstance(array, np.ndarray):
            array = np.frombuffer(bytes_of(tensor), array.dtype)
        return list(array.reshape(-1).tolist())
    if not isinstance(array, np.ndarray):
        array = array.on_cpu()
    try:
        return [
            each.decode() if isinstance(each, bytes) else str(each) for each in array.reshape(-1).tolist()
        ]
    except UnicodeDecodeError:
        refuse(
            f"output '{tensor._name}' has bytes that are no UTF-8 text, which JSON cannot carry; ask for it "
            "in the binary data format"
        )


def written(answer: Any) -> bytes:
    """Return JSON text; NaN and infinities as Triton writes them."""
    return json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
