"""Where a requester's outputs are to be: in the memory that it prefers, otherwise where the model left them.

Mirrors the response allocator of python_backend/src/request_executor.cc. A requester that prefers some memory
says so by `Wanted` in place of the plain tuple of output names; for all others nothing here is called.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bls_notebook.devices import allocation_log
from bls_notebook.devices.device import DeviceError
from bls_notebook.devices.registry import need_gpu
from bls_notebook.devices.transfers import to_gpu
from bls_notebook.engine import messages
from bls_notebook.engine.failures import error_response
from bls_notebook.engine.recording import log as recording
from bls_notebook.engine.recording.log import Crossed
from bls_notebook.pb_utils.options import MemoryType, PreferredMemory
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor, TextOnGPU

from .handover import hand_over


class Wanted(tuple[str, ...]):
    """Names of outputs, and the memory that they are to be in."""

    memory: PreferredMemory
    span = 0  # number of the request in a profile

    @classmethod
    def of(cls, names: tuple[str, ...], memory: PreferredMemory) -> Wanted:
        """Return the names with the memory."""
        out = cls(names)
        out.memory = memory
        return out


def memory_problem(memory: PreferredMemory) -> str | None:
    """Return why outputs cannot be in this memory: there is no such GPU."""
    if memory._memory_type != MemoryType.TRITONSERVER_MEMORY_GPU:
        return None
    try:
        need_gpu(memory._device_id)
    except DeviceError as error:
        return messages.no_gpu(str(error))
    return None


def _in_memory(tensors: list[Tensor], given: bool, memory: PreferredMemory) -> list[Tensor]:
    """As `hand_over`, in the memory that a requester prefers; raises MemoryError or DeviceError too."""
    on_gpu = memory._memory_type == MemoryType.TRITONSERVER_MEMORY_GPU
    moved: dict[int, Tensor] = {}
    for number in range(len(tensors) if on_gpu else 0):
        tensor = _moved(tensors[number], memory._device_id)
        if tensor is not None:
            moved[number] = tensor
    for number in reversed(moved):
        del tensors[number]
    out = hand_over(tensors, given, cpu_only=not on_gpu)
    if allocation_log.recording is not None:
        allocation_log.recording.paired(tensors, out)
    for number, tensor in moved.items():
        out.insert(number, tensor)
    return out


def _moved(tensor: Tensor, index: int) -> Tensor | None:
    """A copy of a tensor on a GPU; None where it is there."""
    array: Any = tensor._array
    if isinstance(array, TextOnGPU):
        there = array.at(index)
        return None if there is array else Tensor._of(tensor._name, there, "BYTES")  # type: ignore[arg-type]
    if tensor._datatype == "BYTES":
        text: Any = TextOnGPU.of(array, index)
        return Tensor._of(tensor._name, text, "BYTES")
    if not isinstance(array, np.ndarray) and tensor._device().index == index:
        return None
    return Tensor._of(tensor._name, to_gpu(array, index), tensor._datatype)


def placed(response: InferenceResponse, wanted: tuple[str, ...], given: bool = True) -> InferenceResponse:
    """Put the outputs of a response in the memory that its requester prefers, if it prefers any.

    Returns InferenceResponse: the same, or one with an error where the memory does not suffice.
    """
    if wanted.__class__ is tuple or response._error is not None:
        return response
    assert isinstance(wanted, Wanted)
    tensors, response._outputs = response._outputs, []
    try:
        log = recording.active if wanted.span else None
        before = [isinstance(t._array, np.ndarray) for t in tensors] if log is not None else []
        response._outputs = _in_memory(tensors, given, wanted.memory)
        if log is not None:
            after = [isinstance(t._array, np.ndarray) for t in response._outputs]
            moved = sum(a is not b for a, b in zip(before, after, strict=True))
            log.crossed.extend(Crossed(wanted.span, moved))
    except (MemoryError, DeviceError) as error:
        return error_response(messages.not_placed(wanted.memory._device_id, str(error)))
    return response
