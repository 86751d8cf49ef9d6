"""`Execution`: the state of one run of a model's `execute`: its parent, its requests, and the requests that it sent.

`engine.calling` adds the methods that send requests. Guarantees: an execution knows each request that it sent until
the request is answered, and interrupting an execution interrupts these requests too.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from weakref import WeakSet, ref

from bls_notebook.engine.observer import Observed
from bls_notebook.engine.waiting.busy_code import report_if_busy
from bls_notebook.engine.waiting.interrupts import RETRY_SECONDS, interrupt_thread
from bls_notebook.engine.waiting.worker_threads import start_in_thread
from bls_notebook.pb_utils.errors import TritonModelException
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.records.errors import ErrorRecord
from bls_notebook.records.models import Stubbed

from .instance import Instance
from .model import LoadedModel
from .server import Server

MOST_WARNINGS = 20  # of one response
PATIENCE = 10  # time for a coroutine to notice that it is cancelled, in hundredths of a second
_NO_WARNINGS: Mapping[str, None] = MappingProxyType({})


class ReceivedError:
    """An error response that an execution received; `read` if the model asked for its error."""

    __slots__ = ("read", "record", "response")

    def __init__(self, response: InferenceResponse, record: ErrorRecord) -> None:
        self.record, self.response, self.read = record, ref(response), False


class Execution:
    """One run of `execute` for `parent`'s request; with no model, the root of requests from outside any model."""

    __slots__ = (
        "__weakref__", "_children", "_guard", "bare", "cancelled", "causes", "depth", "finished",
        "inferred", "instance", "model", "observed", "parent", "requests", "rows", "server", "stalled", "started",
        "task", "tasks", "thread", "tickets", "warnings",
    )  # fmt: skip

    is_client = False  # True outside any model: to cancel the await of a response cancels the request
    combined = False  # True for an ensemble, which runs no code itself
    _of = ""  # name of the model whose code runs if `model` is None; set by subclasses

    bare: bool  # it sends the requests of bare threads, which carry no context
    finished: bool
    instance: Instance | None
    task: asyncio.Task[Any] | None
    tasks: WeakSet[asyncio.Task[Any]] | None
    rows: list[int]  # rows of each of `requests`
    inferred: int  # when `execute` returned
    observed: Observed | None  # its (first) request
    causes: list[ReceivedError] | None  # errors of requests that it sent
    stalled: Callable[[], bool] | None  # returns whether its code in another process still only awaits responses
    _children: set[Any] | None  # of `Ticket`
    # Held to set `finished`, and while `interrupt` uses `thread`: the scheduler's lock, or a lock of this execution.
    _guard: threading.Lock | None

    def __init__(self, server: Server, model: LoadedModel | None, parent: Execution | None) -> None:
        # On the path of every request: objects with slots, all of them set, are fastest.
        self.server = server
        self.model = model
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.bare = self.cancelled = self.finished = False
        self.instance = self.task = self.tasks = self.observed = None
        self.requests: Sequence[InferenceRequest] = ()
        self.tickets: Sequence[Any] = ()
        self.started = self.inferred = self.thread = 0
        self.warnings: Mapping[str, None] = _NO_WARNINGS  # an ordered set
        self.causes = self._children = self._guard = self.stalled = None

    @property
    def instance_name(self) -> str:
        return self.instance.name if self.instance is not None else "notebook"

    @property
    def modules(self) -> Any:
        """The modules of the running model's code, or None."""
        return None if self.instance is None else self.instance.modules

    @property
    def runs_a_model(self) -> bool:
        """True if it runs code of a model, False if it runs code of the notebook."""
        return self.model is not None or bool(self._of)

    @property
    def model_name(self) -> str:
        """Name of the model that runs, or that owns the thread."""
        return self.model.name if self.model is not None else self._of or "notebook"

    def note_error(self, response: InferenceResponse) -> None:
        """Record an error response that this execution received: the cause of a failure, or ignored by the model."""
        error = response._error
        if error is not None:
            received = ReceivedError(response, error._origin or ErrorRecord(error._message, error._code.name))
            response._received = received
            self.causes = [*(self.causes or [])[-15:], received]
            if self.model is not None:
                self.model.outputs.note()

    def note_warnings(self, warnings: Iterable[str]) -> None:
        """Add warnings to the responses of this execution."""
        if self.model is not None:
            if len(self.warnings) >= MOST_WARNINGS:
                warnings = [warning for warning in warnings if warning.__class__ is Stubbed]  # keep every stub
            self.warnings = {**self.warnings, **dict.fromkeys(warnings)}
            self.model.outputs.note()

    def note_blocking(self, callee: str) -> None:
        """Warn if a request sent by `exec` blocks the loop of an async `execute`."""
        if self.model is not None and self.tasks is not None and threading.get_ident() == self.thread:
            warning = (
                f"model '{self.model.name}': exec of '{callee}' inside an async execute stops its event loop "
                "until the answer is there; use `await request.async_exec()`"
            )
            self.note_warnings([warning])

    @property
    def directory(self) -> str:
        """Folder of the running model's version; empty in the notebook."""
        return self.model.directory if self.model is not None else ""

    def model_directory(self) -> str:
        if not self.directory:
            raise TritonModelException("get_model_dir: no model is running here.")
        return self.directory

    @property
    def children(self) -> set[Any]:
        """Unanswered requests that this execution sent."""
        if self._children is None:
            self._children = set()
        return self._children

    def adopt(self, ticket: Any) -> None:
        self.children.add(ticket)

    def forget(self, ticket: Any) -> None:
        if self._children is not None:
            self._children.discard(ticket)

    def interrupt(self) -> None:
        """Stop this execution and all requests that it sent."""
        if not self.cancelled and self.instance is not None:
            report_if_busy(self)
        self.cancelled = True
        for ticket in list(self._children or ()):
            ticket.interrupt()
        if self.model is not None:
            for bare in list(self.model.bare):
                bare.interrupt()
        if self.task is not None:
            self._interrupt_task(self.task)
        elif self._guard is not None and self.instance is not None:
            self.instance.home.interrupt(self)

    def _interrupt_task(self, task: asyncio.Task[Any]) -> None:
        loop = task.get_loop()
        try:
            loop.call_soon_threadsafe(task.cancel)
        except RuntimeError:
            return  # the loop is closed
        if self.thread == threading.get_ident():
            return

        def insist() -> None:
            # Code that never awaits does not notice that its task is cancelled.
            for _ in range(PATIENCE):
                time.sleep(0.01)
                if task.done() or asyncio.current_task(loop) is not task:
                    return
            seconds = RETRY_SECONDS
            while not task.done() and not interrupt_thread(self.thread):
                time.sleep(seconds)
                seconds = min(2 * seconds, 0.1)  # as `HomeThread.interrupt`: an import may take long

        start_in_thread(insist)
