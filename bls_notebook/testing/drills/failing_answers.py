"""`FailingAnswers`: answers of a callee that misbehaves: those that it gave when all was well, made wrong."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from bls_notebook.devices.device import OutOfMemoryError
from bls_notebook.devices.transfers import to_gpu
from bls_notebook.pb_utils import InferenceRequest, InferenceResponse, Tensor, TritonError
from bls_notebook.repository.substitution.call import Answer, Call, Last
from bls_notebook.repository.substitution.waiter import Waiter

from .delayed_response import DelayedResponse
from .faults import Fault
from .spoilt_tensors import spoilt

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
