"""The interface of a substitution: a `Call` (one request), `Answers` to it, and a `Waiter` for delays.

The `Waiter` also sends a request to the real model beneath the substitution. Keys identify BLS calls across runs: (key
of the sender's call, callee, number of the call to this callee). `CallKeys` assigns a key when a request is sent, so
concurrent calls keep their identity in whatever order they are executed.

Guarantees: a wait ends with its request and with the substitution; Ctrl-C ends a wait. No two requests of one server
get the same key; assigning a key never blocks.
"""

from __future__ import annotations

import itertools
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
from bls_notebook.engine.calling import SendingExecution
from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.model_spec import ModelSpec
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.core.signature_check import input_reshapes, reshape_all
from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.observer import Observed, Observer
from bls_notebook.engine.response_stream import TicketStream
from bls_notebook.engine.tensors.received_inputs import received
from bls_notebook.engine.ticket import Ticket
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.errors import TritonError, TritonModelException
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse, StreamEnded
from bls_notebook.pb_utils.tensor import Tensor

CallPath = tuple[Any, ...]

OUTSIDE: CallPath = ()  # the sender of requests from outside any model
THREAD = "thread"  # in the key of a model's bare threads: (OUTSIDE, model, THREAD)
_lock = threading.Lock()
_unknown = itertools.count(1)


class CallKey:
    """The key of one request, with a count of the requests that its receiver has sent to each callee."""

    __slots__ = ("_sent", "key")

    def __init__(self, key: CallPath) -> None:
        self.key = key
        self._sent: dict[str, int] = {}

    def next(self, callee: str) -> CallKey:
        with _lock:
            number = self._sent.get(callee, 0)
            self._sent[callee] = number + 1
        return CallKey((self.key, callee, number))

    def sent(self) -> dict[str, int]:
        """Return the number of requests sent so far, by callee."""
        with _lock:
            return self._sent.copy()


class CallKeys(Observer):
    """Assigns keys while a substitution is on; several that are on at once assign one."""

    def received(
        self, model: LoadedModel, request: InferenceRequest, inputs: Any, copy: InferenceRequest, sender: Execution
    ) -> None:
        if copy._observed.key is None:
            copy._observed.key = key_of_execution(sender).next(model.name)


def key_of_request(request: InferenceRequest) -> CallKey | None:
    observed: Observed | None = getattr(request, "_observed", None)  # unset if the scheduler made the request
    return None if observed is None else observed.key


def key_of_execution(execution: Execution) -> CallKey:
    """Return the key of an execution's request; for a batch, the key of its first request."""
    if execution.model is None:  # the notebook, or a bare thread of a model
        numbers: dict[str, CallKey] = execution.server.outside
        name = execution._of
        key = (OUTSIDE, name, THREAD) if name else OUTSIDE
        return numbers.get(name) or numbers.setdefault(name, CallKey(key))
    observed = execution.observed = execution.observed or Observed()
    if observed.key is None:  # the request was sent before the substitution began
        known = next(filter(None, map(key_of_request, execution.requests)), None)
        observed.key = known or CallKey((OUTSIDE, execution.model.name, -next(_unknown)))
    assert isinstance(observed.key, CallKey)
    return observed.key


class AnswerKind(Enum):
    """Answers that the substitution provides."""

    MADE_UP = "values made up from the model's configuration"
    ASK = "all responses of the real model"


MADE_UP, ASK = AnswerKind.MADE_UP, AnswerKind.ASK


@dataclass(frozen=True)
class Last:
    """The last response of a decoupled model, sent together with the final flag.

    If no answer is a `Last`, the flag is sent alone after the last response.
    """

    answer: InferenceResponse | TritonError | AnswerKind


Answer = InferenceResponse | TritonError | AnswerKind | Last


class Answers(Protocol):
    """Answers the requests to one substituted model."""

    def answer(self, call: Call, wait: Waiter) -> Iterator[Answer] | AsyncIterator[Answer]:
        """Yield one answer, or any number for a decoupled model; an error is yielded or raised.

        Called from many threads, without a lock. An async generator function runs in the event loop of the model's
        instance. If the model is not decoupled, the generator runs to its end before the answer is sent.
        """


@dataclass(frozen=True, eq=False)
class Call:
    """One request to a substituted model.

    ``key`` is ``(key of the sender's call, callee, number of the call from that sender to that callee)``. It is fixed
    when the request is sent. The notebook's key as a sender is ``()``; its calls are numbered from the start of the
    substitution, and earlier calls have negative numbers. ``inputs`` are read-only copies on the CPU. ``sequence``
    contains the correlation ID and the flags. ``chain`` names the running models, outermost first; the last one sent
    the request. ``timeout`` is in microseconds. ``batch`` is the number of requests in the same execution, and
    ``place`` the index of this request.
    """

    key: CallPath
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


def call_of(request: InferenceRequest, key: CallPath, target: tuple[str, int, str], batch: int, place: int = 0) -> Call:
    """Return the `Call` of a request that a model has received; `target` is the model, its version and its instance."""
    options = request._options
    model, version, instance = target
    return Call(
        key,
        model,
        version,
        {tensor._name: _copy(tensor) for tensor in request._inputs},
        tuple(request._requested),
        json.loads(options.parameters),
        (options.correlation_id, options.flags),
        chain_of(getattr(request._answerable, "parent", None)),
        options.request_id,
        options.timeout,
        instance,
        batch,
        place,
    )


def is_null(request: InferenceRequest) -> bool:
    """Return whether a sequence batcher created the request to fill an empty slot."""
    ticket: Any = request._answerable
    return ticket is not None and getattr(ticket, "context", ticket) is None and ticket.parent is None


def _copy(tensor: Tensor) -> Tensor:
    array = np.array(to_cpu(tensor._array), copy=True)
    array.flags.writeable = False
    return Tensor._of(tensor._name, array, tensor._datatype)


def chain_of(sender: Any) -> tuple[str, ...]:
    """Return the names of the running models, outermost first; `sender` is the execution that sends."""
    names: list[str] = []
    passed_on = None  # the key of a request that a substituted model passed to the real one
    while sender is not None:
        key = None if sender.observed is None else sender.observed.key
        if sender.runs_a_model and (key is None or key is not passed_on):
            names.append(sender.model_name)
            passed_on = key
        sender = sender.parent
    return tuple(reversed(names))


_SLICE = 0.02  # seconds between a waiting thread's checks for cancellation


class CallProgress:
    """The answered calls of a substitution, and whether the substitution is over. Thread-safe."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.over = False
        self.answered: list[CallPath] = []  # in the order of completion
        self.done: set[CallPath] = set()
        self._lock = threading.Lock()
        self._waiting: set[threading.Event] = set()

    @contextmanager
    def answering(self, key: CallPath) -> Iterator[None]:
        """Record that the block answers a call; afterwards wake the waiting threads."""
        with self._lock:
            self.answered.append(key)  # before the sender gets the answer and may read this list
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
        """Yield an event that is set on every change."""
        event = threading.Event()
        with self._lock:
            self._waiting.add(event)
        try:
            yield event
        finally:
            with self._lock:
                self._waiting.discard(event)


def _is_cancelled(request: InferenceRequest) -> bool:
    try:
        return request.is_cancelled()
    except TritonModelException:  # it has been answered
        return False


@dataclass(eq=False)
class Waiter:
    """Waits on behalf of one call. Each wait ends as soon as the request is cancelled or the substitution is over.

    ``request`` is the request that the substituted model received; do not keep a reference to it. ``decoupled`` says
    whether the model may send any number of responses, and ``asked`` whether the real model received the request.
    """

    _progress: CallProgress
    request: InferenceRequest
    _batch: Sequence[InferenceRequest]
    _model: str
    decoupled: bool
    asked: bool = False

    @property
    def spec(self) -> ModelSpec | None:
        """The substituted model's specification; None if it has been unloaded."""
        model = self._progress.server.find(self._model)
        return None if model is None else model.spec

    def ended(self) -> bool:
        """Return whether the substitution is over, or every request of the batch is cancelled."""
        return self._progress.over or all(map(_is_cancelled, self._batch))

    def sleep(self, seconds: float) -> bool:
        """Wait this long; return False if the wait ended early."""
        deadline = monotonic() + seconds
        return self.until(lambda: monotonic() >= deadline, seconds)

    def after(self, *keys: CallPath, seconds: float | None = None) -> bool:
        """Wait until the calls with these keys are answered; return False if the wait ended early.

        `seconds` is the timeout. With ``concurrent=True`` a call counts as answered once its sender has the response,
        otherwise once the response exists.
        """
        return self.until(lambda: self._progress.done.issuperset(keys), seconds)

    def until(self, done: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until `done()` is true; return False if the wait ended early or after the timeout `seconds`.

        `done` is called 50 times a second and after each answer.
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
        """Send the request to the real model and yield its responses; an error is a response.

        The real model's requests have the same keys as without the substitution.
        """
        for response, final in self.ask_with_flags():
            if not final or response._outputs or response._error is not None:
                yield response

    def ask_with_flags(self) -> Iterator[tuple[InferenceResponse, bool]]:
        """Like `ask`, with a flag: whether the response came with the final flag. A flag alone has no outputs."""
        own = self._progress.server.own(self._model)
        model = own.get(self.request._model_version) or (own[max(own)] if own else None)
        if model is None:
            raise BLSError(f"substitute of {self._model!r}: the real model is not loaded")
        self.asked = True
        sender: Any = caller_var.get()
        box = [_passed_on(model, self.request, sender)]  # popped below, so that only the model references the request
        back = input_reshapes(model.spec.outputs)
        if not model.decoupled:
            response = model.scheduler.call(sender, box.pop())
            reshape_all(response._outputs, back)
            yield response, True
            return
        ticket = Ticket(model, box.pop(), sender, copy_context())
        sender.submit(ticket)
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
    """Return a copy of the request for the real model, with the same key."""
    names = model.spec.inputs  # a sequence batcher may have added control inputs
    tensors = [Tensor._of(t._name, t._array, t._datatype) for t in request._inputs if t._name in names]
    reshape_all(tensors, {name: reshape.back() for name, reshape in model.reshapes.items()})
    copied = InferenceRequest(inputs=tensors, requested_output_names=list(request._requested), model_name=model.name)
    copied._options = request._options
    out = received(model, copied, False, "stream" if model.decoupled else "sync", sender)
    key = key_of_request(request)
    if key is not None and out._observed is not None:
        out._observed.key = key
    return out
