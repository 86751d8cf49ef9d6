"""Answers made wrong: each tensor of a response changed in one way. Pure; values are in host memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bls_notebook.pb_utils import Tensor

Array = npt.NDArray[Any]
_MIB = 1 << 20
_BF16 = {"nan": 0x7FC0, "inf": 0x7F80, "huge": 0x7F7F}


def _empty(array: Array, batching: bool) -> Array:
    """The same rank without a value, with as many rows where rows are of a batch."""
    if array.ndim == 0:
        return np.empty(0, array.dtype)
    place = 1 if batching and array.ndim > 1 else 0
    return np.ascontiguousarray(array[(slice(None),) * place + (slice(0, 0),)])


def _another_shape(array: Array, batching: bool) -> Array:
    """The same values with a dimension of 1 more, after the batch."""
    return np.ascontiguousarray(np.expand_dims(array, 1 if batching and array.ndim else 0))


def _another_type(array: Array, batching: bool) -> Array:
    kind = array.dtype.kind
    if kind == "O":
        return np.zeros(array.shape, np.int32)
    if kind == "f":
        return array.astype(np.float32 if array.dtype.itemsize == 8 else np.float64)
    return array.astype(np.uint8 if kind == "b" else np.float32)


def _filled(value: float) -> Callable[[Array, bool], Array | None]:
    def fill(array: Array, batching: bool) -> Array | None:
        return np.full_like(array, value) if array.dtype.kind == "f" and array.size else None

    return fill


def _huge(array: Array, batching: bool) -> Array | None:
    kind = array.dtype.kind
    if not array.size or kind == "b":
        return None
    if kind == "O":
        out = np.empty(array.shape, np.object_)
        out[...] = b"x" * _MIB
        return out
    return np.full_like(array, np.finfo(array.dtype).max if kind == "f" else np.iinfo(array.dtype).max)


_CHANGES: Mapping[str, Callable[[Array, bool], Array | None]] = {
    "empty": _empty,
    "shape": _another_shape,
    "data-type": _another_type,
    "nan": _filled(float("nan")),
    "inf": _filled(float("inf")),
    "huge": _huge,
}


def spoilt(tensors: Sequence[Tensor], fault: str, batching: bool) -> list[Tensor] | None:
    """Return the tensors of a response, each changed as the fault says where it can be.

    None where none of them can be changed so: whole numbers are never NaN. ``batching`` says whether the
    first dimension counts the rows of a batch.
    """
    if fault == "missing-output":
        return [] if tensors else None
    changed = [_changed(tensor, fault, batching) for tensor in tensors]
    if all(tensor is None for tensor in changed):
        return None
    return [new or old for new, old in zip(changed, tensors, strict=True)]


def _changed(tensor: Tensor, fault: str, batching: bool) -> Tensor | None:
    array: Array = tensor._array
    if tensor._datatype == "BF16":
        if fault in _BF16:
            return Tensor._of(tensor._name, np.full_like(array, _BF16[fault]), "BF16")
        if fault == "data-type":
            wide = (array.astype(np.uint32) << 16).view(np.float32)
            return Tensor._of(tensor._name, wide, "FP32")
    out = _CHANGES[fault](array, batching)
    if out is None:
        return None
    return (
        Tensor(tensor._name, out) if fault == "data-type" else Tensor._of(tensor._name, out, tensor._datatype)
    )
