"""Sending requests: on behalf of model code (`SendingExecution`) and from outside any model (`Root`).

Guarantees: any thread or task that carries the context may send requests. An error of a request is returned, never
raised. Ctrl-C during a call of `Root` ends its wait at once, is raised before the call returns at the latest, and
interrupts the requests that the call has sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from typing import Any
from weakref import ref

from bls_notebook.pb_utils.errors import UnreadableError
from bls_notebook.pb_utils.options import DEFAULT_OPTIONS, correlation_problem, parameters_problem
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse, ResponseIterator
from bls_notebook.records.errors import ErrorRecord
from bls_notebook.records.messages import LogLine
from bls_notebook.records.visible_text import encodable

from . import logs, observer
from .core.execution import Execution
from .core.hash_order import as_received
from .core.model import LoadedModel
from .core.server import Server
from .deadlocks.detection import check
from .deadlocks.reports import report_if_long
from .error_responses import error_response, originating, over_bls, seen_inputs
from .errors import not_ready, running
from .exception_text import label_of
from .observer import Observed
from .response_stream import AnsweredStream, AsyncResponseStream, TicketStream
from .tensors.outputs import is_ignored, memory_problem
from .tensors.received_inputs import NotReceivedError, received
from .tensors.reused_buffers import watch
from .ticket import Ticket
from .waiting.busy_code import line_below, name_line
from .waiting.event_loops import ModelEventLoop, response_of
from .waiting.interrupts import CtrlC, Interrupted
from .waiting.worker_threads import start_in_thread

MAX_DEPTH = 1000
_noting = threading.Lock()  # bare threads of one execution note at the same time
_running_loop = asyncio.get_running_loop


class SendingExecution(Execution):
    """An execution that can send requests."""

    __slots__ = ()

    tickets: Sequence[Ticket]

    def bare_caller(self) -> SendingExecution:
        return BareCaller(self.server, self.model, self.observed, self)

    def exec(self, request: InferenceRequest, decoupled: bool, given: bool) -> Any:
        if self.cancelled and self.model is not None:
            raise Interrupted  # a model that sends one request after the other is nearly always in the engine
        model = self.server.find(request._model_name, request._model_version)
        if model is None:
            model = self.server.missed(request._model_name, request._model_version)
        if model is None:
            unknown = self.server.unknown(request._model_name, request._model_version)
            return self._refused(request, unknown, decoupled)
        caller = self.model
        if model.asks_ready and not decoupled and caller is not None and not model.ready():
            return self._refused(request, not_ready(model.name), decoupled)
        if caller is not None and model.name not in caller.calls:
            caller.calls.add(model.name)
        problem = model.check.problem(request)
        if model.decoupled or (
            problem is None and (self.depth >= MAX_DEPTH or request._options is not DEFAULT_OPTIONS)
        ):
            problem = self._problem(model, request, decoupled) or problem  # Triton's backend checks before its core
        if problem is not None:
            return self._refused(request, problem, decoupled)
        if decoupled:
            self.note_blocking(model.name)
            try:
                return self._stream(model, request, given)
            except NotReceivedError as error:
                return self._refused(request, str(error), decoupled)
        try:
            response = model.scheduler.call(self, received(model, request, given, "sync", self))
        except NotReceivedError as error:
            return self._refused(request, str(error), decoupled)
        if response._error is not None:
            response = originating(response, model)
            if self.model is not None:
                response = over_bls(response)
            self.note_error(response)
        return response

    def async_exec(self, request: InferenceRequest, decoupled: bool, given: bool) -> asyncio.Future[Any]:
        loop = _running_loop()
        inputs = request._inputs
        ticket = self._ticket(request, decoupled, given)
        if ticket.__class__ is not Ticket:
            refused: asyncio.Future[Any] = loop.create_future()
            refused.set_result(ticket)
            return refused
        if not self.is_client and inputs:
            watch(loop, self, ticket.model.name, as_received(inputs), ticket.request._inputs)  # type: ignore[union-attr]
        future = response_of(ticket, loop, self.responses_of(TicketStream(ticket, self)) if decoupled else None)
        self._send(ticket)
        if loop.__class__ is not ModelEventLoop and (self.model is not None or self.bare):
            report_if_long(ticket)
        return future

    def begin_exec(self, request: InferenceRequest, decoupled: bool, then: Callable[[Any], None]) -> None:
        """Send a request of another process; call `then` with its response, or iterator, on any thread.

        `then` raises nothing and does not wait.
        """
        ticket = self._ticket(request, decoupled, True)
        if ticket.__class__ is not Ticket:
            then(ticket)
            return

        def come() -> None:
            ticket.on_response = None
            if decoupled:
                then(self.responses_of(TicketStream(ticket, self)))
            elif (taken := ticket.take()) is not None:
                if taken[0]._error is not None:
                    self.note_error(taken[0])
                then(taken[0])

        ticket.on_response = come
        self._send(ticket)
        if self.bare:
            report_if_long(ticket)

    def _ticket(self, request: InferenceRequest, decoupled: bool, given: bool) -> Any:
        """Return the ticket of an async request, or the refusal."""
        model = self.server.find(request._model_name, request._model_version)
        if model is None:
            model = self.server.missed(request._model_name, request._model_version)
        problem = None if model is None else model.check.problem(request)
        if model is None or (problem is not None and not model.decoupled):
            problem = problem or self.server.unknown(request._model_name, request._model_version)
            return self._refused(request, problem, decoupled, "async")
        if self.model is not None and model.name not in self.model.calls:
            self.model.calls.add(model.name)
        if model.decoupled or self.depth >= MAX_DEPTH or request._options is not DEFAULT_OPTIONS:
            problem = self._problem(model, request, decoupled) or problem
            if problem is not None:
                return self._refused(request, problem, decoupled, "async")
        try:
            inputs = received(model, request, given, "stream" if decoupled else "async", self)
        except NotReceivedError as error:
            return self._refused(request, str(error), decoupled, "async")
        return Ticket(model, inputs, self, copy_context())

    def _problem(self, model: LoadedModel, request: InferenceRequest, decoupled: bool) -> str | None:
        """Return the error of a well-formed request that cannot be sent, or None."""
        if model.decoupled and not decoupled:
            return running(
                model.name,
                f"Model {model.name} is using the decoupled. The current BLS request call doesn't support models using "
                "the decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' or "
                "'async_exec' calls for decoupled models.'",
            )
        if self.depth >= MAX_DEPTH:
            return running(model.name, f"the chain of BLS calls is {MAX_DEPTH} long; does a model call itself?")
        options = request._options
        problem = parameters_problem(options.parameters) if options.parameters != "{}" else None
        problem = problem or correlation_problem(options.correlation_id)
        if problem is not None:
            return running(model.name, problem)
        memory = options.preferred_memory
        if memory is None:
            return None
        if self.model is None or not is_ignored(memory):
            return memory_problem(memory)
        self.note_warnings([
            f"model '{self.model.name}' prefers gpu:{memory._device_id} for the outputs of '{model.name}', but there "
            "is no GPU: they are in the CPU's memory, as on a server built without GPUs. NVIDIA's server without a GPU "
            "answers with an error"
        ])  # fmt: skip
        return None

    def _stream(self, model: LoadedModel, request: InferenceRequest, given: bool) -> Any:
        ticket = Ticket(model, received(model, request, given, "stream", self), self, copy_context())
        self._send(ticket)
        return self.responses_of(TicketStream(ticket, self))

    def _send(self, ticket: Ticket) -> None:
        """Submit a request; one of a model only after the callee's own `is_ready` has returned True."""
        if not ticket.model.asks_ready or self.model is None:
            self.submit(ticket)
            return

        def send_if_ready() -> None:
            if ticket.model.ready():
                self.submit(ticket)
            else:
                ticket.outside = True
                ticket.finish(error_response(not_ready(ticket.model.name)))

        self.adopt(ticket)
        start_in_thread(send_if_ready)

    def submit(self, ticket: Ticket) -> None:
        """Send a request of this execution to its model's scheduler."""
        self.adopt(ticket)
        if self.cancelled:  # Ctrl-C has interrupted the requests that this execution had sent by then
            ticket.outside = True
            ticket.interrupt()
        else:
            ticket.model.scheduler.submit(ticket)

    def responses_of(self, stream: AsyncResponseStream) -> Any:
        """Return the iterator over the responses of a decoupled request."""
        return ResponseIterator(stream)

    def _refused(self, request: InferenceRequest, problem: str, decoupled: bool, kind: str = "sync") -> Any:
        name = request._model_name
        message = encodable(problem)
        origin = ErrorRecord(message, "INTERNAL", (name,), stage="refused", inputs=seen_inputs(request))
        response = error_response(message, origin=origin)
        if message != problem and self.model is not None:
            with contextlib.suppress(UnicodeEncodeError):
                response._error = UnreadableError(problem.encode(errors="surrogateescape"))
                response._error._origin = origin
        self.note_error(response)
        if (watching := observer.active) is not None:
            observed = Observed("stream" if decoupled else kind)
            watching.refused(self, request, observed, response)
            watching.answered(observed, response)
        return self.responses_of(AnsweredStream(response)) if decoupled else response

    def stall(self, still: Callable[[], bool]) -> None:
        """Note that all code of its process only awaits responses while `still()`; refuse one that would never come."""
        self.stalled = still
        if self._children and not self.finished:
            check([self])

    def log(self, level: str, message: str, file: str, line: int) -> None:
        logs.write(LogLine(level, self.model_name, message, label_of(file), line, self.bare))


class BareCaller(SendingExecution):
    """Sends the requests of a bare thread of `model`; `observed` is the request that the thread works for.

    A bare thread carries no context. Errors and warnings reach the execution `behind`, if it is known.
    """

    def __init__(self, server: Server, model: LoadedModel | None, observed: Observed | None, behind: Any) -> None:
        super().__init__(server, None, None)
        self.bare, self.observed, self._of = True, observed, "" if model is None else model.name
        self._behind: Any = ref(behind) if isinstance(behind, Execution) else lambda: None
        if model is not None:
            model.bare.add(self)

    def note_error(self, response: InferenceResponse) -> None:
        with _noting:
            Execution.note_error(self._behind() or self, response)

    def note_warnings(self, warnings: Iterable[str]) -> None:
        with _noting:
            Execution.note_warnings(self._behind() or self, warnings)


_exec = SendingExecution.exec


class Root(SendingExecution):
    """The sender of requests of one call from outside."""

    __slots__ = ()
    is_client = True

    def exec(self, request: InferenceRequest, decoupled: bool, given: bool) -> Any:
        try:
            with CtrlC():
                return _exec(self, request, decoupled, given)
        except KeyboardInterrupt as error:  # of a wait, or noted while the request was sent
            self.stop(error)
            raise

    def async_exec(self, request: InferenceRequest, decoupled: bool, given: bool) -> asyncio.Future[Any]:
        try:
            with CtrlC():
                return super().async_exec(request, decoupled, given)
        except KeyboardInterrupt as error:
            self.stop(error)
            raise

    def stop(self, error: KeyboardInterrupt) -> None:
        """Interrupt the requests of a call that Ctrl-C has ended."""
        with CtrlC():
            name_line(error, line_below(self))
            self.interrupt()

    def responses_of(self, stream: AsyncResponseStream) -> AsyncResponseStream:
        return _Stream(stream, self)


class CellBody(Root):
    """The sender of requests of notebook code that runs as the body of an `execute`."""

    __slots__ = ()
    is_client = False

    def responses_of(self, stream: AsyncResponseStream) -> Any:
        return ResponseIterator(_Stream(stream, self))


class _Stream:
    """A response stream that is read outside any model."""

    def __init__(self, stream: AsyncResponseStream, root: Root) -> None:
        self._stream, self._root = stream, root

    def next_response(self) -> tuple[InferenceResponse, bool]:
        try:
            with CtrlC():
                return self._stream.next_response()
        except KeyboardInterrupt as error:
            self._root.stop(error)
            raise

    async def next_response_async(self) -> tuple[InferenceResponse, bool]:
        return await self._stream.next_response_async()

    def cancel(self) -> None:
        with CtrlC():
            self._stream.cancel()

    def discard(self) -> None:
        self._stream.discard()


def root_of(server: Server, kind: type[Root] = Root) -> Root:
    """Return a sender for this thread's requests from outside any model."""
    # A constructor that makes objects of two classes by turns loses CPython's attribute caches, so make the usual
    # class and change it.
    root: Any = SendingExecution(server, None, None)
    root.__class__ = kind
    root.thread = threading.get_ident()
    return root  # type: ignore[no-any-return]
