"""`Execution`: one run of a model's `execute`, and who sends the BLS requests made in it.

It is what the context variable of `pb_utils` holds while a model runs. Guarantees: requests may be sent
from any thread or task that carries it; an error of a request is returned, never raised; interrupting
an execution interrupts everything that it started.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Mapping
from contextvars import copy_context
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from bls_notebook.engine import logs, messages
from bls_notebook.engine.failures import error_response, originating, over_bls
from bls_notebook.engine.recording.spans import record_refused
from bls_notebook.engine.tensors.inbound import NotReceivedError, received
from bls_notebook.engine.tensors.placement import memory_problem
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.ctrl_c import RETRY_SECONDS
from bls_notebook.engine.waiting.futures import response_of
from bls_notebook.engine.waiting.idle_loops import wake_loop_of, watch_loop
from bls_notebook.engine.waiting.interrupt import clear_interrupt, interrupt_thread
from bls_notebook.engine.waiting.stream import AnsweredStream, Stream, TicketStream
from bls_notebook.engine.waiting.threads import start_in_thread
from bls_notebook.engine.warnings import MOST, blocking_exec
from bls_notebook.observe import recording
from bls_notebook.observe.logs import LogLine
from bls_notebook.observe.records import ErrorRecord
from bls_notebook.pb_utils.errors import TritonModelException
from bls_notebook.pb_utils.iterator import ResponseIterator
from bls_notebook.pb_utils.parameters import parameters_problem
from bls_notebook.pb_utils.request import DEFAULT_OPTIONS, InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

if TYPE_CHECKING:
    from .instance import Instance
    from .model import LoadedModel
    from .server import Server

__all__ = ["MAX_DEPTH", "Execution", "bare_caller"]

MAX_DEPTH = 1000
PATIENCE = 10  # hundredths of a second that a coroutine has to notice that it is cancelled
_NO_WARNINGS: Mapping[str, None] = MappingProxyType({})
_running_loop = asyncio.get_running_loop
_get_ident = threading.get_ident
_CLOSED = "Unable to send response. Response sender has been closed."


class Execution:
    """One run of `execute`; also the root that requests from outside any model hang on.

    Parameters
    ----------
    server : Server
    model : LoadedModel or None
        None for a root.
    parent : Execution or None
        Who sent the request.
    """

    __slots__ = (
        "__weakref__",
        "_causes",
        "_children",
        "_guard",
        "_inline",
        "bare",
        "cancelled",
        "depth",
        "finished",
        "inferred",
        "instance",
        "model",
        "parent",
        "request",
        "requests",
        "server",
        "span",
        "started",
        "task",
        "tasks",
        "thread",
        "ticket",
        "tickets",
        "timer",
        "track",
        "warnings",
    )

    combined = False  # it runs no model itself, but sends requests to others: see `waits_for`
    _of = ""  # the model whose code runs, where `model` is None; set by subclasses

    bare: bool  # it sends requests of threads that carry no context
    finished: bool
    request: InferenceRequest | None
    ticket: Ticket | None
    instance: Instance | None
    task: asyncio.Task[Any] | None
    tasks: WeakSet[asyncio.Task[Any]] | None
    inferred: int  # when `execute` returned
    timer: Any  # of its GPU, while it is recorded there
    track: int  # the number of its request, while a memory track is on
    _causes: list[ErrorRecord] | None
    _children: set[Ticket] | None
    _guard: threading.Lock | None
    _inline: set[Execution] | None

    def __init__(self, server: Server, model: LoadedModel | None, parent: Execution | None) -> None:
        # Making one is on the path of every request: slots, and all of them set, are quickest.
        self.server = server
        self.model = model
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.bare = self.cancelled = self.finished = False
        self.instance = self.request = self.ticket = self.task = self.tasks = None
        # Of a batch, in step; instead of `request` and `ticket`.
        self.requests: tuple[InferenceRequest, ...] = ()
        self.tickets: tuple[Ticket, ...] = ()
        self.started = self.inferred = self.thread = self.track = 0
        self.span = 0  # number of its request in a profile; of a batch, of the first
        self.warnings: Mapping[str, None] = _NO_WARNINGS  # in order, each once
        self._causes = self._children = self._guard = self._inline = None

    @property
    def instance_name(self) -> str:
        """Name of the instance that runs it."""
        return self.instance.name if self.instance is not None else "notebook"

    @property
    def modules(self) -> Any:
        """Where the modules of the code that runs live; None where it is no model's."""
        return None if self.instance is None else self.instance.modules

    @property
    def runs_a_model(self) -> bool:
        """Whether it is code of a model that runs, and not of the notebook."""
        return self.model is not None or bool(self._of)

    @property
    def model_name(self) -> str:
        """Name of the model that runs, or that its thread belongs to."""
        return self.model.name if self.model is not None else self._of or "notebook"

    def bare_caller(self) -> Execution:
        """Return who sends requests from a thread that carries no context, on behalf of this model."""
        return bare_caller(self.server, self.model, self.span)

    # -- as a caller (pb_utils._runtime.Caller) --------------------------------------------------

    def exec(self, request: InferenceRequest, decoupled: bool, given: bool) -> Any:
        """Serve a request on this thread, or wait for it."""
        model = self.server.find(request._model_name, request._model_version)
        if model is None:
            return self._refused(request, messages.not_ready(request._model_name), decoupled)
        problem = model.check.problem(request)
        if problem is None and (
            model.decoupled or self.depth >= MAX_DEPTH or request._options is not DEFAULT_OPTIONS
        ):
            problem = self._problem(model, request, decoupled)
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
            response = originating(response, model.name)
            if self.model is not None:
                response = over_bls(response)
            self.note_error(response)
        return response

    def async_exec(self, request: InferenceRequest, decoupled: bool, given: bool) -> asyncio.Future[Any]:
        """Serve a request in the background; needs a running event loop."""
        loop = _running_loop()
        if (self.task is None or self.thread != _get_ident()) and (self.model is not None or self.bare):
            watch_loop(loop, self)
        model = self.server.find(request._model_name, request._model_version)
        problem = messages.not_ready(request._model_name) if model is None else model.check.problem(request)
        if model is None or problem is not None:
            return self._refused_later(loop, request, problem, decoupled)
        if model.decoupled or self.depth >= MAX_DEPTH or request._options is not DEFAULT_OPTIONS:
            problem = self._problem(model, request, decoupled)
            if problem is not None:
                return self._refused_later(loop, request, problem, decoupled)
        kind = "stream" if decoupled else "async"
        try:
            ticket = Ticket(model, received(model, request, given, kind, self), self, copy_context())
        except NotReceivedError as error:
            return self._refused_later(loop, request, str(error), decoupled)
        stream = self.responses_of(TicketStream(ticket, self)) if decoupled else None
        future = response_of(ticket, loop, stream)
        children = self._children
        if children is None:
            children = self.children
        children.add(ticket)
        model.scheduler.submit(ticket)
        return future

    def _problem(self, model: LoadedModel, request: InferenceRequest, decoupled: bool) -> str | None:
        """What keeps a well-formed request from being sent."""
        if model.decoupled and not decoupled:
            return messages.decoupled_called_as_plain(model.name)
        if self.depth >= MAX_DEPTH:
            return messages.running(
                model.name, f"the chain of BLS calls is {MAX_DEPTH} long; does a model call itself?"
            )
        options = request._options
        problem = parameters_problem(options.parameters) if options.parameters != "{}" else None
        if problem is not None:
            return messages.running(model.name, problem)
        return None if options.preferred_memory is None else memory_problem(options.preferred_memory)

    def _stream(self, model: LoadedModel, request: InferenceRequest, given: bool) -> Any:
        ticket = Ticket(model, received(model, request, given, "stream", self), self, copy_context())
        self.adopt(ticket)
        model.scheduler.submit(ticket)
        return self.responses_of(TicketStream(ticket, self))

    def responses_of(self, stream: Stream) -> Any:
        """Return what the sender of a decoupled request gets."""
        return ResponseIterator(stream)

    def _refused(self, request: InferenceRequest, problem: str, decoupled: bool, kind: str = "sync") -> Any:
        name = request._model_name
        response = error_response(problem, origin=ErrorRecord(problem, "INTERNAL", (name,)))
        self.note_error(response)
        if recording.active is not None:
            record_refused(self, request, "stream" if decoupled else kind, response)
        return self.responses_of(AnsweredStream(response)) if decoupled else response

    def _refused_later(
        self, loop: Any, request: InferenceRequest, problem: str | None, decoupled: bool
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = loop.create_future()
        problem = problem or messages.not_ready(request._model_name)
        future.set_result(self._refused(request, problem, decoupled, "async"))
        return future

    def note_error(self, response: InferenceResponse) -> None:
        """Remember an error that this execution was answered with, in case that it fails of it."""
        error = response._error
        origin = None if error is None else error._origin
        if origin is None and error is not None:
            origin = ErrorRecord(error._message, error._code.name)
        if origin is not None:
            causes = self._causes or []
            self._causes = [*causes[-15:], origin]

    def note_warnings(self, warnings: Iterable[str]) -> None:
        """Remember warnings, for the responses that this execution gives."""
        if self.model is not None and len(self.warnings) < MOST:
            self.warnings = {**self.warnings, **dict.fromkeys(warnings)}
            self.model.outputs.note()

    def note_blocking(self, callee: str) -> None:
        """Take note of a request that is sent by `exec`, if that blocks the loop of an async `execute`."""
        if self.model is not None and self.tasks is not None and threading.get_ident() == self.thread:
            self.note_warnings([blocking_exec(self.model.name, callee)])

    @property
    def causes(self) -> list[ErrorRecord] | None:
        """Errors of requests that this execution sent."""
        return self._causes

    def load_model(self, name: str, config: str, files: dict[str, bytes] | None) -> None:
        """Load or reload a model."""
        self.server.load_for_model(self, name, config, files)

    def unload_model(self, name: str, unload_dependents: bool) -> None:
        """Unload a model; its requests in flight are finished in the background."""
        self.server.unload_for_model(self, name, unload_dependents)

    def is_model_ready(self, name: str, version: str) -> bool:
        """Whether a version of a model is ready."""
        return self.server.is_ready_for_model(self, name, version)

    def log(self, level: str, message: str, file: str, line: int) -> None:
        """Write to the server's log."""
        logs.write(LogLine(level, self.model_name, message, file, line, self.bare))

    def metric_family(self, name: str, description: str, kind: str) -> Any:
        """Return a family of custom metrics."""
        return self.server.metric_family(self, name, description, kind)

    @property
    def directory(self) -> str:
        """Folder of the version of the model that runs; empty in the notebook."""
        return self.model.directory if self.model is not None else ""

    def model_directory(self) -> str:
        """Return the folder of the running model's version."""
        if not self.directory:
            raise TritonModelException("get_model_dir: no model is running here.")
        return self.directory

    # -- as the one who answers (pb_utils.sender.Answerable), where it runs inline ------------------

    def open_ticket(self, request: InferenceRequest) -> Ticket:
        """Return the ticket that late answers go through."""
        if self.ticket is None:
            if self.model is None:
                raise TritonModelException(_CLOSED)
            ticket = Ticket(self.model, request, self.parent, None)
            ticket.request = None
            ticket.execution = self
            self.ticket = ticket
        return self.ticket

    def send(self, response: InferenceResponse | None, final: bool) -> None:
        """Take a response from the model's sender."""
        if self.ticket is None:
            request = self.request
            if self.finished or request is None:
                raise TritonModelException(_CLOSED)
            self.open_ticket(request)
        if self.ticket is not None:
            self.ticket.send(response, final)

    def drop_sender(self) -> None:
        """The sender is gone."""
        if self.ticket is not None:
            self.ticket.drop_sender()

    def waits_for(self, blocked: Mapping[int, Any]) -> list[Any]:
        """Return the requests that must all be answered before a combined execution is."""
        return list(self.children)

    # -- children ----------------------------------------------------------------------------------

    @property
    def children(self) -> set[Ticket]:
        """Requests that were sent from here and are not answered yet (those that are known)."""
        if self._children is None:
            self._children = set()
        return self._children

    def adopt(self, ticket: Ticket) -> None:
        """Count a request as started by this execution."""
        self.children.add(ticket)

    def forget(self, ticket: Ticket) -> None:
        """A request has been answered."""
        if self._children is not None:
            self._children.discard(ticket)

    def interruptible(self) -> threading.Lock:
        """Return the lock under which `thread` is trusted by `interrupt`, and `finished` is set.

        One of its own, or its scheduler's where that is taken at its end anyway.
        """
        if self._guard is None:
            self._guard = threading.Lock()
        return self._guard

    def watch(self, execution: Execution) -> threading.Lock:
        """Remember an execution that runs inline in a thread which is not this one's own."""
        guard = execution.interruptible()
        if self._inline is None:
            self._inline = set()
        self._inline.add(execution)
        return guard

    def unwatch(self, execution: Execution, guard: threading.Lock) -> None:
        """An execution that was watched has ended."""
        with guard:
            execution.finished = True
        if execution.cancelled:
            clear_interrupt(execution.thread)
        if self._inline is not None:
            self._inline.discard(execution)

    def interrupt(self) -> None:
        """Stop what this execution does, and everything that it started."""
        self.cancelled = True
        for ticket in list(self._children or ()):
            ticket.interrupt()
        for execution in list(self._inline or ()):
            execution.interrupt()
        if self.model is not None:
            for bare in list(self.model.bare):
                bare.interrupt()
        if self.task is not None:
            self._interrupt_task(self.task)
        elif self._guard is not None and self.thread != threading.get_ident():
            self._interrupt_thread(self._guard)

    def _interrupt_thread(self, guard: threading.Lock) -> None:
        with guard:
            if not self.thread or self.finished:
                return
            if interrupt_thread(self.thread):
                wake_loop_of(self.thread)
                return
        retry = threading.Timer(RETRY_SECONDS, self._interrupt_thread, (guard,))
        retry.daemon = True
        retry.start()

    def _interrupt_task(self, task: asyncio.Task[Any]) -> None:
        loop = task.get_loop()
        try:
            loop.call_soon_threadsafe(task.cancel)
        except RuntimeError:
            return  # its loop is closed
        if self.thread == threading.get_ident():
            return

        def insist() -> None:
            # Code that never awaits does not see that its task is cancelled.
            for _ in range(PATIENCE):
                time.sleep(0.01)
                if task.done() or asyncio.current_task(loop) is not task:
                    return
            while not task.done() and not interrupt_thread(self.thread):
                time.sleep(RETRY_SECONDS)

        start_in_thread(insist)


class _Bare(Execution):
    """Sends requests of a thread that carries no context."""


def bare_caller(server: Server, model: LoadedModel | None, span: int = 0) -> Execution:
    """Return who sends requests from a thread that carries no context; `model` is whose code it runs.

    `span` is the number in a profile of the request that it works for.
    """
    execution = _Bare(server, None, None)
    execution.bare = True
    execution.span = span
    if model is not None:
        execution._of = model.name
        model.bare.add(execution)
    return execution
