"""Handing tensors from one model to another as if they lived in processes of their own.

Guarantees: what one side does to its arrays is never seen by the other, and every array that is
handed over is writeable. Memory moves without a copy only where nobody else can reach it any more: its
giver holds neither the request, the tensor, the array, nor what the array is a view of, and there is
no weak reference. A view's base that is not a plain array (a buffer, a DLPack capsule, a framework's
tensor) counts as held. When in doubt, it is copied.

Counts are exact: a count that says "nobody else" cannot grow behind our back, because growing it
takes a reference. Needs no lock.
"""

from __future__ import annotations

from sys import getrefcount as _getrefcount
from typing import Any
from weakref import getweakrefcount

import numpy as np

from bls_notebook.devices.ledger import unwatched
from bls_notebook.pb_utils.dtypes import element_bytes
from bls_notebook.pb_utils.holders import RecordingNumber
from bls_notebook.pb_utils.tensor import Tensor

__all__ = ["hand_over"]

# Copying so few bytes costs less than finding out who holds them.
SMALL = 2048

_ndarray = np.ndarray
_new = Tensor.__new__


def _copy_of_bytes(tensor: Tensor) -> Tensor:
    """The tensor as its receiver sees it: an object array of bytes."""
    array = np.asarray(tensor._array)  # of a subclass, the plain array: a matrix cannot be made flat
    out = np.empty(array.shape, np.object_)
    out.reshape(-1)[:] = [element_bytes(e) for e in array.reshape(-1).tolist()]
    return Tensor._of(tensor._name, out, "BYTES")


def _base_unheld(array: np.ndarray[Any, Any]) -> bool:
    base = array.base
    if base is None:
        return array.flags.owndata
    return (
        base.__class__ is _ndarray
        and base.base is None
        and base.flags.owndata
        and base.flags.writeable
        and _getrefcount(base) == _BASE_UNHELD
        and (getweakrefcount(base) == 0 or unwatched(base))
    )


def hand_over(tensors: list[Tensor], given: bool) -> list[Tensor]:
    """Return tensors for the other side.

    Parameters
    ----------
    tensors : list of Tensor
        Of a request or response.
    given : bool
        Nobody but the engine holds that request or response any more.

    Returns
    -------
    list of Tensor
        The same tensors where their memory moves, copies elsewhere.
    """
    out = []
    for tensor in tensors:
        array = tensor._array
        datatype = tensor._datatype
        if datatype == "BYTES":
            out.append(_copy_of_bytes(tensor))
        elif (
            given
            and array.nbytes > SMALL
            and array.__class__ is _ndarray
            and tensor.__class__ is Tensor
            and _getrefcount(tensor) == _TENSOR_UNHELD
            and _getrefcount(array) == _ARRAY_UNHELD
            and array.flags.writeable
            and (getweakrefcount(array) == 0 or unwatched(array))
            and getweakrefcount(tensor) == 0
            and _base_unheld(array)
        ):
            out.append(tensor)
        else:
            copied = _new(Tensor)
            copied._name = tensor._name
            copied._datatype = datatype
            copied._array = array.copy() if array.__class__ is _ndarray else np.array(array, subok=False)
            out.append(copied)
    return out


def _calibrate() -> None:
    global _TENSOR_UNHELD, _ARRAY_UNHELD, _BASE_UNHELD
    size = SMALL + 1
    recorder = RecordingNumber()
    _TENSOR_UNHELD = recorder  # type: ignore[assignment]
    hand_over([Tensor("T", np.zeros(size, np.uint8))], True)
    kept = Tensor("T", np.zeros(size, np.uint8))
    hand_over([kept], True)
    _TENSOR_UNHELD = recorder.unheld()
    if _TENSOR_UNHELD < 0:
        return
    recorder = RecordingNumber()
    _ARRAY_UNHELD = recorder  # type: ignore[assignment]
    hand_over([Tensor("T", np.zeros(size, np.uint8))], True)
    array = np.zeros(size, np.uint8)
    hand_over([Tensor("T", array)], True)
    _ARRAY_UNHELD = recorder.unheld()
    recorder = RecordingNumber()
    _BASE_UNHELD = recorder  # type: ignore[assignment]
    hand_over([Tensor("T", np.zeros(size, np.uint8).reshape(1, -1))], True)
    hand_over([Tensor("T", array[:])], True)
    _BASE_UNHELD = recorder.unheld()


_TENSOR_UNHELD: int = -1
_ARRAY_UNHELD: int = -1
_BASE_UNHELD: int = -1
_calibrate()
