"""Faults of a drill: their names, and the changes that they make to the tensors of a response."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bls_notebook.engine import BLSError
from bls_notebook.pb_utils import Tensor
from bls_notebook.pb_utils.dtypes import Array


@dataclass(frozen=True)
class Fault:
    """A way in which a callee fails.

    ``kind`` is error (an error response), once (an error, then the right response), batch (an error for one of several
    requests), data (a wrong response), timing (the right response at another time), stall (no response), cancel (no
    response, and the client cancels) or stream (a stream with too many or too few right responses).
    """

    name: str
    kind: str
    says: str


_LINES = Path(__file__).with_name("faults.txt").read_text("utf-8").splitlines()
FAULTS = tuple(Fault(*line.split("|")) for line in _LINES)
NO_FAULT = Fault("none", "none", "responds as recorded")
_BY_NAME = {fault.name: fault for fault in FAULTS}
AFTER_RESPONSES = ("error-midway", "unloaded")  # the callee has sent right responses before it fails
STREAMS = ("no-response", "early-end", "duplicate", "error-midway", "no-final-flag")
CODES = {"error": "UNAVAILABLE", "cancelled": "CANCELLED", "raises": "INTERNAL", "error-midway": "INTERNAL"}
# Only these are tried in pairs: with two callees, the others show nothing new.
IN_PAIRS = ("error", "missing-output", "nan", "empty")


def faults_named(names: Iterable[str] | None) -> tuple[Fault, ...]:
    """Return the faults with these names, all of them for None; raise a BLSError for an unknown name."""
    if names is None:
        return FAULTS
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in _BY_NAME:
            raise BLSError(f"drill: there is no fault {name!r}; expected one of {', '.join(_BY_NAME)}")
    return tuple(fault for fault in FAULTS if fault.name in wanted)


def suggested_faults(words: Sequence[str], models: Sequence[object]) -> list[str]:
    return list(_BY_NAME)


_MIB = 1 << 20
_BF16 = {"nan": 0x7FC0, "inf": 0x7F80, "huge": 0x7F7F}


def _empty(array: Array, batching: bool) -> Array:
    """Return an array of the same rank without elements; a batch keeps its rows."""
    if array.ndim == 0:
        return np.empty(0, array.dtype)
    place = 1 if batching and array.ndim > 1 else 0
    return np.ascontiguousarray(array[(slice(None),) * place + (slice(0, 0),)])


def _another_type(array: Array, batching: bool) -> Array:
    if array.dtype.kind == "O":
        return np.zeros(array.shape, np.int32)
    return array.astype({"e": np.float64, "f": np.float64, "?": np.uint8}.get(array.dtype.char, np.float32))


def _filled(array: Array, value: float) -> Array | None:
    return np.full_like(array, value) if array.dtype.kind == "f" and array.size else None


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
    # The same values with one more dimension, after the batch.
    "shape": lambda array, batching: np.ascontiguousarray(np.expand_dims(array, 1 if batching and array.ndim else 0)),
    "data-type": _another_type,
    "nan": lambda array, batching: _filled(array, np.nan),
    "inf": lambda array, batching: _filled(array, np.inf),
    "huge": _huge,
}


def spoilt(tensors: Sequence[Tensor], fault: str, batching: bool) -> list[Tensor] | None:
    """Return the tensors of a response with a fault; None if it changes no tensor (an integer cannot be NaN).

    ``batching`` says whether the first dimension counts the rows of a batch.
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
            return Tensor._of(tensor._name, (array.astype(np.uint32) << 16).view(np.float32), "FP32")
    out = _CHANGES[fault](array, batching)
    if out is None:
        return None
    return Tensor(tensor._name, out) if fault == "data-type" else Tensor._of(tensor._name, out, tensor._datatype)
