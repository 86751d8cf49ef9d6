"""`Call`: one request to a substituted model; `Answers`: what answers it; `Waiter`: how an answer waits, and
asks the real model beneath the substitution.

Guarantees: no wait outlasts its request or the substitution; Ctrl-C ends a wait.
"""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from enum import Enum
from time import monotonic
from typing import Any, Protocol

import numpy as np

from bls_notebook.devices.transfers import to_cpu
from bls_notebook.engine.call_keys import Key
from bls_notebook.engine.calling import SendingExecution
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.core.spec import ModelSpec
from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.tensors.config_check import input_reshapes, reshape_all
from bls_notebook.engine.tensors.inbound import received
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.interrupts import may_be_interrupted
from bls_notebook.engine.waiting.stream import TicketStream
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.errors import TritonError
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse, StreamEnded
from bls_notebook.pb_utils.tensor import Tensor


class AnswerKind(Enum):
    """Answers that the substitution makes itself."""

    MADE_UP = "values made up from the model's configuration"
    ASK = "all responses of the real model"


MADE_UP, ASK = AnswerKind.MADE_UP, AnswerKind.ASK


@dataclass(frozen=True)
class Last:
    """The last response of a decoupled model, sent with the final flag.

    Without it the flag is sent alone, after the last response.
    """

    answer: InferenceResponse | TritonError | AnswerKind


Answer = InferenceResponse | TritonError | AnswerKind | Last


class Answers(Protocol):
    """Answers the requests to one substituted model."""

    def answer(self, call: Call, wait: Waiter) -> Iterator[Answer] | AsyncIterator[Answer]:
        """Yield one answer, or any number for a decoupled model; an error is yielded or raised.

        Called without a lock, from many threads. An async generator function runs in an event loop of the model's
        instance. The generator is run to its end before the answer of a model that is not decoupled is sent.
        """


@dataclass(frozen=True, eq=False)
class Call:
    """One request to a substituted model.

    ``key`` is ``(key of the sender's call, callee, how many-th call from that sender to that callee)``, fixed when the
    request is sent. The key of the notebook as a sender is ``()``; its calls are numbered from when the substitution
    began, and those sent before have negative numbers. ``inputs`` are read-only copies on the CPU, ``sequence`` is the
    correlation ID and the flags. ``chain`` names the models that were running, outermost first; the last one sent the
    request. ``timeout`` is in microseconds. ``batch`` is the number of requests in the same execution, and ``place``
    the index of this one.
    """

    key: Key
    model: str
    version: int
    inputs: Mapping[str, Tensor]
    outputs: tuple[str, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    sequence: tuple[int | str, int] = (0, 0)
    chain: tuple[str, ...] = ()
    request_id: str = ""
    timeout: int = 0
    instance: str = ""
    batch: int = 1
    place: int = 0


def call_of(
    request: InferenceRequest,
    key: Key,
    where: tuple[str, int, str],
    batch: int,
    place: int = 0,
    tensors: bool = True,
    sender: Any = None,
) -> Call:
    """Return the record of a request that a model has received; without its inputs if `tensors` is False.

    `where` has the model, its version and its instance; `sender` is the execution that sent the request, for
    requests that do not know it yet.
    """
    options = request._options
    model, version, instance = where
    return Call(
        key,
        model,
        version,
        {tensor._name: _copy(tensor) for tensor in request._inputs if tensors},
        tuple(request._requested),
        json.loads(options.parameters),
        (options.correlation_id, options.flags),
        chain_of(sender or getattr(request._answerable, "parent", None)),
        options.request_id,
        options.timeout,
        instance,
        batch,
        place,
    )


def is_null(request: InferenceRequest) -> bool:
    """Whether a sequence batcher made the request, to fill a slot that has nothing to do."""
    ticket: Any = request._answerable
    return ticket is not None and getattr(ticket, "context", ticket) is None and ticket.parent is None


def _copy(tensor: Tensor) -> Tensor:
    array = np.array(to_cpu(tensor._array), copy=True)
    array.flags.writeable = False
    return Tensor._of(tensor._name, array, tensor._datatype)


def chain_of(sender: Any) -> tuple[str, ...]:
    """Return the names of the models that are running, outermost first, from the execution that sends."""
    names: list[str] = []
    passed_on = None  # the key of a request that a substituted model passed to the real one
    while sender is not None:
        key = getattr(sender, "call_key", None)
        if sender.runs_a_model and (key is None or key is not passed_on):
            names.append(sender.model_name)
            passed_on = key
        sender = sender.parent
    return tuple(reversed(names))


_SLICE = 0.02  # seconds after which a waiting thread checks for cancellation


class CallProgress:
    """Which calls of a substitution are answered, and whether it is over."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.over = False
        self.answered: list[Key] = []  # in the order of completion
        self.done: set[Key] = set()
        self._lock = threading.Lock()
        self._waiting: set[threading.Event] = set()

    @contextmanager
    def answering(self, key: Key) -> Iterator[None]:
        """Record that a call is answered by the body; wake who waits for that afterwards."""
        with self._lock:
            self.answered.append(key)  # before the sender has the answer: it may read the record at once
        try:
            yield
        finally:
            with self._lock:
                self.done.add(key)
            self.wake()

    def end(self) -> None:
        """End every wait."""
        self.over = True
        self.wake()

    def wake(self) -> None:
        with self._lock:
            waiting = list(self._waiting)
        for event in waiting:
            event.set()

    @contextmanager
    def waiting(self) -> Iterator[threading.Event]:
        """Give an event that is set whenever something has changed."""
        event = threading.Event()
        with self._lock:
            self._waiting.add(event)
        try:
            yield event
        finally:
            with self._lock:
                self._waiting.discard(event)


class Waiter:
    """Waits for one call. Each wait ends at once when the request is cancelled or the substitution is over.

    ``request`` is the request as the substituted model received it; do not keep it. ``decoupled`` says whether the
    model may have any number of responses, ``asked`` whether the real model was asked.
    """

    def __init__(
        self,
        progress: CallProgress,
        request: InferenceRequest,
        batch: Sequence[InferenceRequest],
        model: str,
        decoupled: bool,
    ) -> None:
        self._progress = progress
        self._batch = batch
        self._model = model
        self.decoupled = decoupled
        self.asked = False
        self.request = request

    @property
    def spec(self) -> ModelSpec | None:
        """The substituted model's specification; None if it is not loaded any more."""
        found = self._progress.server.find(self._model)
        return None if found is None else found.spec

    def ended(self) -> bool:
        """Whether the substitution is over, or every request of the batch is cancelled."""
        return self._progress.over or all(request.is_cancelled() for request in self._batch)

    def sleep(self, seconds: float) -> bool:
        """Wait; return False if the wait ended early."""
        deadline = monotonic() + seconds
        return self.until(lambda: monotonic() >= deadline, seconds)

    def after(self, *keys: Key, seconds: float | None = None) -> bool:
        """Wait until the calls with these keys are answered; return False if the wait ended before.

        `seconds` limits the wait. With ``concurrent=True`` a call counts as answered once its sender has the
        response, otherwise once the response is made.
        """
        return self.until(lambda: self._progress.done.issuperset(keys), seconds)

    def until(self, done: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until `done()`, asked 50 times a second and after each answer; return False if the wait ended.

        `seconds` limits the wait.
        """
        deadline = None if seconds is None else monotonic() + seconds
        with self._progress.waiting() as changed:
            while not self.ended():
                if done():
                    return True
                left = _SLICE if deadline is None else min(_SLICE, deadline - monotonic())
                if left <= 0:
                    return done()
                changed.wait(left)
                changed.clear()
        return False

    def ask(self) -> Iterator[InferenceResponse]:
        """Send the request to the real model; yield its responses, an error as a response.

        Requests that the real model sends have the same keys as without the substitution.
        """
        for response, final in self.ask_with_flags():
            if not final or response._outputs or response._error is not None:
                yield response

    def ask_with_flags(self) -> Iterator[tuple[InferenceResponse, bool]]:
        """As `ask`, with whether the final flag came with the response; without outputs it came alone."""
        own = self._progress.server.own(self._model)
        model = own.get(self.request._model_version) or (own[max(own)] if own else None)
        if model is None:
            raise BLSError(f"substitute of {self._model!r}: the real model is not loaded")
        self.asked = True
        sender: Any = caller_var.get()
        box = [_passed_on(model, self.request, sender)]  # nobody but the model may hold the request
        back = input_reshapes(model.spec.outputs)
        if not model.decoupled:
            response = model.scheduler.call(sender, box.pop())
            reshape_all(response._outputs, back)
            yield response, True
            return
        ticket = Ticket(model, box.pop(), sender, copy_context())
        sender.adopt(ticket)
        model.scheduler.submit(ticket)
        stream, final = TicketStream(ticket, sender), False
        try:
            while not final:
                response, final = stream.next_response()
                reshape_all(response._outputs, back)
                yield response, final
        except StreamEnded:
            pass
        finally:
            if not final:
                stream.cancel()


def _passed_on(model: LoadedModel, request: InferenceRequest, sender: SendingExecution) -> InferenceRequest:
    """A request as the real model receives it, with the key that it has already."""
    names = model.spec.inputs  # a sequence batcher may have added others
    tensors = [Tensor._of(t._name, t._array, t._datatype) for t in request._inputs if t._name in names]
    reshape_all(tensors, {name: there.back() for name, there in model.reshapes.items()})
    copied = InferenceRequest(inputs=tensors, requested_output_names=list(request._requested), model_name=model.name)
    copied._options = request._options
    out = received(model, copied, False, "stream" if model.decoupled else "sync", sender)
    key = getattr(request, "_call_key", None)
    if key is not None:
        out._call_key = key
    return out


may_be_interrupted(Waiter.until.__code__, waits=True)
