"""`Actor`: answers for a model that misbehaves: as it has answered when all was well, and then made wrong."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from bls_notebook.devices.device import OutOfMemoryError
from bls_notebook.devices.transfers import to_gpu
from bls_notebook.pb_utils import InferenceRequest, InferenceResponse, Tensor, TritonError

from .faults import Fault
from .holding import Hold
from .spoiling import spoilt

_LATE = 0.02  # seconds that an answer is late, or
_LATE_IN_ALL = 0.2  # so many for all the answers to one request
_PATIENCE = 0.25  # seconds that the first of two requests waits for the second


class Answers(Protocol):
    """What a model answers when all is well."""

    flag_alone: bool
    """Whether the final flag of a stream comes without a response."""

    def __call__(self, request: InferenceRequest) -> list[InferenceResponse]:
        """Return the responses to a request."""


class Actor:
    """The answers of one model with one fault; what `ModelRepository.stub` takes as a function.

    The ``answers`` are those of the model when all is well: it is ``decoupled`` or not, ``batching`` or not,
    has outputs ``on_gpu`` (their GPUs, by name), and gives so many ``responses`` to the requests of a drill.
    ``hold`` keeps what is not to be answered, ``unload`` takes the model out of service.
    """

    def __init__(
        self,
        fault: Fault,
        model: str,
        answers: Answers,
        decoupled: bool,
        batching: bool,
        on_gpu: Mapping[str, int],
        responses: int,
        hold: Hold,
        unload: Callable[[], object],
    ) -> None:
        self.fault, self.model = fault, model
        self._answers, self._hold, self._unload = answers, hold, unload
        self._decoupled, self._batching, self._on_gpu = decoupled, batching, on_gpu
        self._late = min(_LATE, _LATE_IN_ALL / max(1, responses))
        self._numbers = itertools.count(1)
        self._second = threading.Event()
        self.words = f"drill: '{model}' fails on purpose"

    def __call__(self, request: InferenceRequest) -> Any:
        """Answer a request."""
        answer = self._answer(request, next(self._numbers))
        if self.fault.kind == "stall" and self._decoupled:
            return answer
        every = list(answer)  # all of it: what comes after an answer too
        if not self._decoupled:
            return every[0]
        # An error reaches its requester with the final flag alone. Others come as they did then.
        return every if self.fault.kind == "error" or not self._answers.flag_alone else iter(every)

    def _answer(self, request: InferenceRequest, number: int) -> Iterator[Any]:
        name = self.fault.name
        healthy = self._answers
        if name in ("error", "cancelled", "raises", "out-of-memory"):
            yield self._failure(name)
        elif name == "unloaded":
            yield from map(self._placed, healthy(request))
            if number == 1:  # a second may be under way already
                self._unload()
        elif name == "stall":
            self._hold.wait()
            yield TritonError(f"drill: '{self.model}' was let go")
        elif name == "no-final-flag":
            yield from map(self._placed, healthy(request))
            self._hold.wait()
        elif name == "slow":
            for response in healthy(request):
                threading.Event().wait(self._late)
                yield self._placed(response)
        elif name == "other-order":
            if number == 1:
                self._second.wait(_PATIENCE)
            yield from map(self._placed, healthy(request))
            self._second.set()
        elif self.fault.kind == "none":
            yield from map(self._placed, healthy(request))
        elif self.fault.kind == "data":
            for response in healthy(request):
                changed = spoilt(response.output_tensors(), name, self._batching)
                yield self._placed(response if changed is None else InferenceResponse(changed))
        else:
            yield from map(self._placed, self._stream(name, healthy(request)))

    def _failure(self, name: str) -> TritonError:
        if name == "raises":
            raise RuntimeError(f"{self.words}\nwith an exception of two lines")
        if name == "out-of-memory":
            raise OutOfMemoryError(1 << 30, 0, 1 << 20, "gpu:0")
        return TritonError(self.words, TritonError.CANCELLED if name == "cancelled" else TritonError.INTERNAL)

    def _stream(self, name: str, responses: list[InferenceResponse]) -> Iterator[InferenceResponse]:
        half = responses[: len(responses) // 2]
        if name == "duplicate":
            for response in responses:
                yield response
                yield InferenceResponse(response.output_tensors())
        elif name in ("early-end", "error-midway"):
            yield from half
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
