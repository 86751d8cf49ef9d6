"""The faults of a drill: their names, how each changes the tensors of a response, and `FailingAnswers`,
which answers for a callee that has one.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bls_notebook.devices.device import OutOfMemoryError
from bls_notebook.devices.transfers import to_gpu
from bls_notebook.engine.errors import BLSError
from bls_notebook.pb_utils import InferenceRequest, InferenceResponse, Tensor, TritonError
from bls_notebook.repository.substitution.call import Answer, Call, Last, Waiter

from .timed_request import DelayedResponse


@dataclass(frozen=True)
class Fault:
    """One way to misbehave.

    ``kind`` is error (no answer but an error), data (an answer that is wrong), timing (the right one, at
    another time) or stream (a stream of right responses that are too many or too few).
    """

    name: str
    kind: str
    says: str


FAULTS = (
    Fault("error", "error", "answers with an error"),
    Fault("cancelled", "error", "answers with an error of the code CANCELLED"),
    Fault("raises", "error", "fails with an exception, so that the error has several lines"),
    Fault("not-ready", "error", "is not loaded"),
    Fault("unloaded", "error", "is unloaded after its first answer"),
    Fault("out-of-memory", "error", "has no room left on its GPU"),
    Fault("missing-output", "data", "answers without its outputs"),
    Fault("empty", "data", "answers tensors without a value"),
    Fault("shape", "data", "answers tensors with a dimension more"),
    Fault("data-type", "data", "answers tensors of another data type"),
    Fault("nan", "data", "answers NaN"),
    Fault("inf", "data", "answers infinity"),
    Fault("huge", "data", "answers the largest numbers that there are, and long texts"),
    Fault("no-response", "stream", "ends its stream without a response"),
    Fault("early-end", "stream", "ends its stream after half of its responses"),
    Fault("duplicate", "stream", "sends each response twice"),
    Fault("error-midway", "error", "sends an error after half of its responses"),
    Fault("no-final-flag", "stall", "sends its responses, and never says that they were all"),
    Fault("stall", "stall", "does not answer"),
    Fault("slow", "timing", "answers late"),
    Fault("other-order", "timing", "answers the second of two requests first"),
)
WELL = Fault("well", "none", "answers as ever")
_BY_NAME = {fault.name: fault for fault in FAULTS}
STREAMS = ("no-response", "early-end", "duplicate", "error-midway", "no-final-flag")
# Of these, pairs are made: the others would tell the same of two models.
IN_PAIRS = ("error", "missing-output", "nan", "empty")


def faults_named(names: Iterable[str] | None) -> tuple[Fault, ...]:
    """Return faults by their names, all of them for None; a BLSError where there is none of such a name."""
    if names is None:
        return FAULTS
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in _BY_NAME:
            raise BLSError(f"drill: no fault {name!r}; there are: {', '.join(_BY_NAME)}")
    return tuple(fault for fault in FAULTS if fault.name in wanted)


def suggested_faults(words: Sequence[str], models: Sequence[object]) -> list[str]:
    """Return what Tab offers for a fault."""
    return list(_BY_NAME)


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
    return Tensor(tensor._name, out) if fault == "data-type" else Tensor._of(tensor._name, out, tensor._datatype)


_LATE = 0.02  # seconds that an answer is late, or
_LATE_IN_ALL = 0.2  # so many for all the answers to one request
_PATIENCE = 0.25  # seconds that the first of two requests waits for the second


class HealthyAnswers(Protocol):
    """What a model answers when all is well."""

    @property
    def flag_alone(self) -> bool:
        """Whether the final flag of a stream comes without a response."""

    def similar(self, request: InferenceRequest) -> list[InferenceResponse]:
        """Return the responses to a request."""


class FailingAnswers:
    """The answers of one model with one fault, as `Answers` of a substitution.

    `healthy` are those of the model when all is well, `batching` whether it batches, `on_gpu` the GPUs of its
    outputs by name, and `responses` how many it gives to the requests of a drill. `delay` keeps what is not
    to be answered, `unload` takes the model out of service.
    """

    def __init__(
        self,
        fault: Fault,
        model: str,
        healthy: HealthyAnswers,
        batching: bool,
        on_gpu: Mapping[str, int],
        responses: int,
        delay: DelayedResponse,
        unload: Callable[[], object],
    ) -> None:
        self.fault, self.model = fault, model
        self._healthy, self._delay, self._unload = healthy, delay, unload
        self._batching, self._on_gpu = batching, on_gpu
        self._late = min(_LATE, _LATE_IN_ALL / max(1, responses))
        self._numbers = itertools.count(1)
        self._second = threading.Event()
        self.words = f"drill: '{model}' fails on purpose"

    def answer(self, call: Call, wait: Waiter) -> Iterator[Answer]:
        """Yield the answers to a call."""
        answers = self._answers(wait, next(self._numbers))
        if self.fault.kind == "stall":
            yield from answers
            return
        every = list(answers)
        if not wait.decoupled:
            yield every[0]
        # An error reaches its requester with the final flag alone. Others come as they did then.
        elif every and (self.fault.kind == "error" or not self._healthy.flag_alone):
            yield from every[:-1]
            yield Last(every[-1])
        else:
            yield from every

    def _answers(self, wait: Waiter, number: int) -> Iterator[InferenceResponse | TritonError]:
        name = self.fault.name
        if name in ("error", "cancelled", "raises", "out-of-memory"):
            yield self._failure(name)
            return
        if name == "stall":
            self._delay.wait(wait)
            yield TritonError(f"drill: '{self.model}' was let go")
            return
        if name == "other-order" and number == 1:
            wait.until(self._second.is_set, _PATIENCE)
        for response in self._changed(name, self._healthy.similar(wait.request)):
            if name == "slow":
                wait.sleep(self._late)
            yield self._placed(response)
        if name == "no-final-flag":
            self._delay.wait(wait)
        elif name == "unloaded" and number == 1:  # a second may be under way already
            self._unload()
        self._second.set()

    def _failure(self, name: str) -> TritonError:
        if name == "raises":
            raise RuntimeError(f"{self.words}\nwith an exception of two lines")
        if name == "out-of-memory":
            raise OutOfMemoryError(1 << 30, 0, 1 << 20, "gpu:0")
        return TritonError(self.words, TritonError.CANCELLED if name == "cancelled" else TritonError.INTERNAL)

    def _changed(self, name: str, responses: list[InferenceResponse]) -> Iterator[InferenceResponse]:
        if name == "no-response":
            return
        if name in ("early-end", "error-midway"):
            responses = responses[: len(responses) // 2]
        for response in responses:
            changed = None
            if self.fault.kind == "data":
                changed = spoilt(response.output_tensors(), name, self._batching)
            yield response if changed is None else InferenceResponse(changed)
            if name == "duplicate":
                yield InferenceResponse(response.output_tensors())
        if name == "error-midway":
            yield InferenceResponse(error=TritonError(self.words))

    def _placed(self, response: InferenceResponse) -> InferenceResponse:
        """The response with its outputs on the GPUs that they were on."""
        if not self._on_gpu or response.has_error():
            return response
        return InferenceResponse([self._moved(tensor) for tensor in response.output_tensors()])

    def _moved(self, tensor: Tensor) -> Tensor:
        index = self._on_gpu.get(tensor._name)
        if index is None or tensor._datatype == "BYTES":
            return tensor
        array: Any = to_gpu(tensor._array, index)
        return Tensor._of(tensor._name, array, tensor._datatype)
