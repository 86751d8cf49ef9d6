"""The outputs of `execute`: checked as Triton's stub checks them, and moved to the requester's preferred memory.

A requester with a preferred memory passes `Wanted` instead of the plain tuple of output names; otherwise
outputs stay on their device. Mirrors the response allocator of python_backend/src/request_executor.cc.
"""

from __future__ import annotations

from sys import getrefcount as _getrefcount
from typing import Any
from weakref import getweakrefcount

import numpy as np

from bls_notebook.devices.device import DeviceError
from bls_notebook.devices.registry import cuda_gpu_count, gpus, need_gpu
from bls_notebook.devices.transfers import to_gpu
from bls_notebook.engine import observer
from bls_notebook.engine.core.signature_check import OutputCheck, reshape_all
from bls_notebook.engine.error_responses import error_response
from bls_notebook.engine.exception_text import ReturnError
from bls_notebook.engine.observer import Observed
from bls_notebook.pb_utils.options import MemoryType, PreferredMemory, as_sent
from bls_notebook.pb_utils.request import RecordingNumber
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import CHANGED, Tensor, TextOnGPU

from .handover import hand_over


class Wanted(tuple[str, ...]):
    """Names of the requested outputs, and the memory to put them into."""

    memory: PreferredMemory

    @classmethod
    def of(cls, names: tuple[str, ...], memory: PreferredMemory) -> Wanted:
        out = cls(names)
        out.memory = memory
        return out


def is_ignored(memory: PreferredMemory) -> bool:
    """Return whether a preference has no effect: a server that was built without GPUs has only the CPU's memory."""
    return memory._memory_type == MemoryType.TRITONSERVER_MEMORY_GPU and gpus() is None and not cuda_gpu_count()


def memory_problem(memory: PreferredMemory) -> str | None:
    """Return why outputs cannot be in this memory (there is no such GPU), or None."""
    if memory._memory_type != MemoryType.TRITONSERVER_MEMORY_GPU:
        return None
    try:
        need_gpu(memory._device_id)
    except DeviceError as error:
        return _not_allocated(
            "failed to get device: CUDA driver version is insufficient for CUDA runtime version",
            f"{error}; or leave preferred_memory out, or ask for the CPU",
        )
    return None


def _not_allocated(problem: str, remedy: str) -> str:
    return (
        "BackendMemory::Create, all allocation types failed:\n"
        f"\tGPU: {problem}\n"
        f"\tGPU_POOL: CudaMemoryManager has no preallocated CUDA memory ({remedy})"
    )


def _in_memory(tensors: list[Tensor], given: bool, memory: PreferredMemory) -> list[Tensor]:
    """Hand tensors over in the preferred memory; raise MemoryError or DeviceError if that fails."""
    on_gpu = memory._memory_type == MemoryType.TRITONSERVER_MEMORY_GPU
    moved: dict[int, Tensor] = {}
    for number in range(len(tensors) if on_gpu else 0):
        tensor = _moved(tensors[number], memory._device_id)
        if tensor is not None:
            moved[number] = tensor
    for number in reversed(moved):
        del tensors[number]
    out = hand_over(tensors, given, cpu_only=not on_gpu)
    if (watching := observer.active) is not None:
        watching.copied(tensors, out)
    for number, tensor in moved.items():
        out.insert(number, tensor)
    return out


def _moved(tensor: Tensor, index: int) -> Tensor | None:
    """Return a copy of a tensor on a GPU; None if it is on that GPU already."""
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


def placed(
    response: InferenceResponse, wanted: tuple[str, ...], observed: Observed | None, given: bool = True
) -> InferenceResponse:
    """Move outputs to the requester's preferred memory, if any; return an error response if they do not fit."""
    if wanted.__class__ is tuple or response._error is not None:
        return response
    assert isinstance(wanted, Wanted)
    tensors, response._outputs = response._outputs, []
    try:
        before = [isinstance(t._array, np.ndarray) for t in tensors]
        response._outputs = _in_memory(tensors, given, wanted.memory)
        if (watching := observer.active) is not None:
            after = [isinstance(t._array, np.ndarray) for t in response._outputs]
            watching.crossed(observed, sum(a is not b for a, b in zip(before, after, strict=True)))
    except (MemoryError, DeviceError) as error:
        return error_response(
            _not_allocated(str(error), f"the outputs were asked for on gpu:{wanted.memory._device_id}")
        )
    return response


_new = InferenceResponse.__new__
_API = InferenceResponse.__module__.rpartition(".")[0] + "."


def _triton_type(value: object) -> str:
    kind = type(value)
    return f"<class 'c_python_backend_utils.{kind.__name__}'>" if kind.__module__.startswith(_API) else str(kind)


def check_returned(returned: Any, count: int) -> list[InferenceResponse | None]:
    """Return the result of `execute` for `count` requests unchanged; raise ReturnError if Triton would reject it."""
    if returned.__class__ is not list and not isinstance(returned, list):
        raise ReturnError(f"Expected a list in the execute return, found type '{_triton_type(returned)}'.")
    if len(returned) != count:
        raise ReturnError(
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
            f"InferenceRequest(s) size is:{count}, and InferenceResponse(s) size is:{len(returned)}\n"
        )
    for response in returned:
        if response is not None and not isinstance(response, InferenceResponse):
            raise ReturnError(
                "Expected an 'InferenceResponse' object in the execute function return list, "
                f"found type '{_triton_type(response)}'."
            )
    return returned


def returned_none(event: str) -> str:
    return (
        f"{event} and the request was not answered: return one InferenceResponse for each request, or send "
        "a response with TRITONSERVER_RESPONSE_COMPLETE_FINAL. (The real server would keep the caller "
        "waiting forever.)"
    )


def replaced_request() -> str:
    return (
        "execute replaced a request in the list that it got: leave the list as it is, or change a copy, "
        "list(requests). (The real server would lose the process of the model.)"
    )


def rescheduled_in_vain() -> str:
    return (
        "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not "
        "configured to handle such a flag. Configure it: sequence_batching { iterative_sequence: true }. "
        "(The real server logs this, and keeps the caller waiting forever.)"
    )


def answer(
    responses: list[Any],
    index: int,
    requested: tuple[str, ...],
    given: bool,
    check: OutputCheck | None = None,
    maker: str = "",
    observed: Observed | None = None,
) -> InferenceResponse:
    """Return the response that a requester gets, its outputs isolated from the model's.

    `requested`: names of outputs, all in the configuration; `Wanted` if the requester prefers a memory. `given`: only
    the engine, and perhaps the code that made the list, refers to the list. `maker`: the instance. Of outputs of one
    name the last counts, as on the real server.
    """
    response: InferenceResponse = responses[index]
    if (
        given
        and _getrefcount(responses) == _LIST_UNHELD
        and _getrefcount(response) == _RESPONSE_UNHELD
        and response.__class__ is InferenceResponse
        and getweakrefcount(response) == 0
    ):
        out, unheld = response, True  # safe to reuse: the model has no reference to it
        tensors: list[Tensor] = response._outputs
    else:
        out, unheld = _new(InferenceResponse), False
        out._parameters = response._parameters
        out._warnings = response._warnings
        out._arrived = 0.0
        out._error = response._error
        tensors = list(response._outputs)
    if response._parameters != "{}":
        out._parameters = as_sent(response._parameters)
    if response._error is not None:
        out._outputs = []
        if check is not None and check.noted:
            out._warnings += ("",)  # the execution may have warnings: see `OutputCheck.warnings`
        return out
    if len(tensors) == 1:
        if tensors[0]._name not in requested:
            if check is not None:
                out._warnings += check.warnings(tensors, requested)
            tensors = []
        elif check is not None and (tensors[0]._array.shape != check.shape or tensors[0]._datatype != check.datatype):
            out._warnings += check.warnings(tensors, requested)
    else:
        as_asked = len(tensors) == len(requested) and {t._name for t in tensors} == set(requested)
        if check is not None and not (as_asked and check.has_seen(tensors)):
            out._warnings += check.warnings(tensors, requested)
        if not as_asked:
            tensors[:] = [t for t in tensors if t._name in requested]
    out._outputs = []
    if requested.__class__ is tuple:
        changed: list[str] = []
        out._outputs = hand_over(tensors, unheld, changed=changed)
        if changed and check is not None:
            out._warnings += check.noted_warnings(f"output '{name}'{CHANGED}" for name in changed)
    else:
        out._outputs = tensors
        out = placed(out, requested, observed, unheld)
        tensors = out._outputs
    watching = observer.active
    if watching is not None and tensors:
        watching.returned(observed, tensors, out._outputs, maker)
    if check is not None and check.reshapes:
        reshape_all(out._outputs, check.reshapes)
    return out


def _calibrate() -> None:
    global _RESPONSE_UNHELD, _LIST_UNHELD
    recorder = RecordingNumber()
    _LIST_UNHELD = recorder  # type: ignore[assignment]
    unkept = [InferenceResponse()]
    answer(unkept, 0, (), True)
    kept = [InferenceResponse()]
    also = kept
    answer(kept, 0, (), True)
    del also
    _LIST_UNHELD = recorder.unheld()
    if _LIST_UNHELD < 0:
        return
    recorder = RecordingNumber()
    _RESPONSE_UNHELD = recorder  # type: ignore[assignment]
    responses = [InferenceResponse()]
    answer(responses, 0, (), True)
    response = InferenceResponse()
    responses = [response]
    answer(responses, 0, (), True)
    _RESPONSE_UNHELD = recorder.unheld()


_LIST_UNHELD: int = -1
_RESPONSE_UNHELD: int = -1
_calibrate()
