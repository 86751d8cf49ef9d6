"""`hand_over`: pass tensors from one model to another as if each model were in its own process.

Guarantees: one side never sees changes that the other makes to its arrays, and every array arrives writeable. Memory
moves without a copy only if no other code can reach it any more: the sender has no reference to the request, the
tensor, the array, or the base of the array, and there is no weak reference. A base that is neither a plain array nor
memory of another process (a buffer, a DLPack capsule, a framework's tensor) counts as referenced. In doubt, the tensor
is copied. The same applies on each GPU; pending GPU work on a tensor, on any stream, is complete before the receiver
gets it.

The reference counts are reliable: if the engine has the only reference, no other code can make a second one.
"""

from __future__ import annotations

from sys import getrefcount as _getrefcount
from typing import Any
from weakref import getweakrefcount

import numpy as np

from bls_notebook.devices.allocation_log import unwatched
from bls_notebook.devices.registry import backend_of
from bls_notebook.devices.transfers import copied, to_cpu
from bls_notebook.pb_utils.dtypes import element_bytes
from bls_notebook.pb_utils.request import RecordingNumber
from bls_notebook.pb_utils.tensor import Tensor, TextOnGPU

# Copying fewer bytes costs less than checking for other references.
SMALL = 2048

_ndarray = np.ndarray
_new = Tensor.__new__


def _copy_of_bytes(tensor: Tensor, cpu_only: bool) -> Tensor:
    """Return the receiver's copy: an object array of bytes."""
    there: Any = tensor._array
    if there.__class__ is TextOnGPU:
        there = there.on_cpu() if cpu_only else there.copy()
        return Tensor._of(tensor._name, there, "BYTES")
    array = np.asarray(tensor._array)  # a plain array: np.matrix, a subclass, cannot become one-dimensional
    out = np.empty(array.shape, np.object_)
    out.reshape(-1)[:] = [element_bytes(e) for e in array.reshape(-1).tolist()]
    return Tensor._of(tensor._name, out, "BYTES")


def _base_unheld(array: np.ndarray[Any, Any]) -> bool:
    base: Any = array.base
    if base is None:
        return array.flags.owndata
    if getattr(base.__class__, "is_only_way_to_memory", False):  # memory that came from another process
        return _getrefcount(base) == _BASE_UNHELD and (getweakrefcount(base) == 0 or unwatched(base))
    return (
        base.__class__ is _ndarray
        and base.base is None
        and base.flags.owndata
        and base.flags.writeable
        and _getrefcount(base) == _BASE_UNHELD
        and (getweakrefcount(base) == 0 or unwatched(base))
    )


def _copy_of(array: Any, cpu_only: bool) -> Any:
    return to_cpu(array) if cpu_only and not isinstance(array, _ndarray) else copied(array)


def _finished(array: Any) -> bool:
    """Return whether this array has the only reference to its GPU memory; if so, wait for pending work on it."""
    there = backend_of(array)
    if there is None or not there.unheld(array):
        return False
    there.finish(array)
    return True


def hand_over(
    tensors: list[Tensor], given: bool, cpu_only: bool = False, changed: list[str] | None = None
) -> list[Tensor]:
    """Return tensors for the receiver: the same ones if their memory moves, else copies.

    `given`: only the engine refers to their request or response. `cpu_only`: copy tensors on a GPU to the CPU.
    `changed` gets the names of tensors whose present content a server would not send. Raises MemoryError if a copy does
    not fit on a GPU.
    """
    out = []
    for tensor in tensors:
        array = tensor._array
        datatype = tensor._datatype
        if (
            changed is not None
            and (tensor._sent is not None or not given or _getrefcount(tensor) != _TENSOR_UNHELD)
            and tensor._has_changed()
        ):
            changed.append(tensor._name)
        if datatype == "BYTES":
            out.append(_copy_of_bytes(tensor, cpu_only))
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
        ) or (
            array.__class__ is not _ndarray
            and not cpu_only
            and given
            and not isinstance(array, _ndarray)
            and tensor.__class__ is Tensor
            and _getrefcount(tensor) == _TENSOR_UNHELD
            and _getrefcount(array) == _ARRAY_UNHELD
            and getweakrefcount(array) == 0
            and getweakrefcount(tensor) == 0
            and _finished(array)
        ):
            tensor._sent = False
            out.append(tensor)
        else:
            copy = _new(Tensor)
            copy._name = tensor._name
            copy._datatype = datatype
            copy._sent = False
            copy._array = array.copy() if array.__class__ is _ndarray else _copy_of(array, cpu_only)
            out.append(copy)
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
