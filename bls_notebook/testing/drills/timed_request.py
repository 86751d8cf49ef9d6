"""Send a drill's request within time limits, also while a callee does not answer.

`Asker` sends the request and returns its outcome; `DelayedResponse` keeps a callee's request unanswered and
reports whether its senders would have given up. A drill does not wait long: the engine knows at once which
senders have no time limit (`limitless`), and `put_forward` advances the clocks of event loops so that their
time limits expire now.

Guarantees: `ask` returns within its time limits whatever a model does, and what it has started has ended
then; otherwise it raises `UnstoppableError`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic, perf_counter
from types import FrameType
from typing import Any

from bls_notebook.engine.calling import root_of
from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.exception_text import frame_at, home_of
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.event_loops import blocked
from bls_notebook.extending import Host
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.records.errors import FrameRecord
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.repository.substitution.call import Waiter

from .outcomes import Outcome, facts_of, place_of

HOUR = 3600.0


class DelayedResponse:
    """Keeps requests unanswered."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._let_go = threading.Event()
        self._senders: list[Execution] = []  # innermost first, of the first request that came
        self._thread = 0

    def wait(self, wait: Waiter) -> None:
        """Wait until it is let go, or nobody waits for the answer any more."""
        if not self.entered.is_set():
            execution = caller_var.get()
            self._thread = threading.get_ident()
            parent = execution.parent if isinstance(execution, Execution) else None
            while parent is not None:
                if parent.model is not None:
                    self._senders.append(parent)
                parent = parent.parent
            self.entered.set()
        wait.until(self._let_go.is_set)

    def let_go(self) -> None:
        """Answer from now on."""
        self._let_go.set()

    @property
    def limitless(self) -> bool:
        """Whether every model on the way waits in the engine, which has no time limit."""
        return bool(self._senders) and all(map(self._waits, self._senders))

    def _waits(self, sender: Execution) -> bool:
        if sender.combined:
            return True
        if sender.task is not None and asyncio.current_task(sender.task.get_loop()) is not sender.task:
            return False  # its loop may have a time limit
        return sender.thread == self._thread or isinstance(blocked.get(sender.thread), Ticket)

    @property
    def loops(self) -> list[asyncio.AbstractEventLoop]:
        """Those in which somebody waits for it."""
        tasks = [sender.task for sender in self._senders if sender.task is not None]
        return list({id(task.get_loop()): task.get_loop() for task in tasks}.values())

    def place(self) -> FrameRecord | None:
        """Return the line of the model that waits."""
        return next(filter(None, map(place_of_sender, self._senders)), None)


def place_of_sender(sender: Execution) -> FrameRecord | None:
    """Return the line that an execution is at; None where that cannot be seen."""
    if sender.task is not None and asyncio.current_task(sender.task.get_loop()) is not sender.task:
        frames = list(_of_task(sender.task))
    else:
        frames = list(_of_thread(sys._current_frames().get(sender.thread)))
    for frame in frames:
        home = home_of(frame.f_globals)
        if home is not None and sender.model is not None and home.model == sender.model.name:
            return frame_at(frame.f_code, frame.f_lineno or 0, home)
    return None


def _of_thread(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _of_task(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    """The frames of a task, the innermost first."""
    frames: list[FrameType] = []
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            break
        frames.append(frame)
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    yield from reversed(frames)


@contextmanager
def put_forward(loops: list[asyncio.AbstractEventLoop], seconds: float) -> Iterator[None]:
    """Put the clocks of event loops forward, so that what is due within so many seconds comes now."""
    changed: list[Any] = []
    for loop in loops:
        untyped: Any = loop
        clock = loop.time
        untyped.time = lambda clock=clock: clock() + seconds
        changed.append(untyped)
        loop.call_soon_threadsafe(_nothing)
    try:
        yield
    finally:
        for each in changed:
            del each.time


def _nothing() -> None:
    """Wakes a loop."""


_SLICE = 0.005
_PATIENCE = 3
_STOPPING = 2.0  # seconds
_FIRST = 60.0  # seconds: models import what they need with their first request
_START, _END = 1, 2  # of a sequence
_correlations = itertools.count(1_000_000)


class UnstoppableError(BLSError):
    """A model runs on, whatever is done."""


class Asker:
    """Sends one request to a model that serves, with ``options`` as `ModelRepository.infer` takes them.

    ``timeout`` is how many seconds an answer may take at least.
    """

    def __init__(
        self,
        repository: ModelRepository,
        model: str,
        inputs: Mapping[str, Any],
        options: Mapping[str, Any],
        timeout: float,
    ) -> None:
        self.host = Host(repository)
        found = self.host.ready(model)
        self.repository, self.model, self.server = repository, model, found.server
        self.decoupled, self.spec = found.decoupled, found.spec
        self.timeout = timeout
        self.usual = _FIRST  # seconds that an answer takes when all is well
        self.inputs, self.options = inputs, options

    @property
    def limit(self) -> float:
        """How long an answer may take that nobody holds back, in seconds."""
        return self.timeout + 10 * self.usual

    def ask(self, hold: DelayedResponse | None = None, calls: Callable[[], Mapping[str, int]] = dict) -> Outcome:
        """Send the request; raise an UnstoppableError where the model runs on.

        ``hold`` keeps a model from answering, and is let go before this returns; ``calls`` says how many
        requests models have got.
        """
        root = root_of(self.server)  # of this thread: what runs in another can be interrupted
        box: list[Any] = []
        done = threading.Event()

        def work() -> None:
            caller_var.set(root)
            try:
                box.extend(map(facts_of, self._send()))
            except BaseException as error:
                box.append(error)
            finally:
                done.set()

        began = perf_counter()
        thread = threading.Thread(target=work, name="bls-drill", daemon=True)
        thread.start()
        state, where, limitless = "answered", None, False
        try:
            entered = None if hold is None else hold.entered
            # A machine that is busy gets a second chance, before it is said that there is no answer.
            if not (_either(done, entered, self.limit) or _either(done, entered, _PATIENCE * self.limit)):
                state, where = "stuck", self._where(root)
            elif hold is not None and not done.is_set():
                limitless = self._waits(hold, done)
                if not done.is_set():
                    state, where = "waited", hold.place()
                    hold.let_go()
                    if not done.wait((1 + _PATIENCE) * self.limit):
                        state, where = "stuck", self._where(root) or where
        finally:
            if hold is not None:
                hold.let_go()
            if not done.is_set():
                root.interrupt()
                if not done.wait(_STOPPING):
                    raise UnstoppableError(f"drill: model {self.model!r} runs on, and cannot be stopped")
        thread.join()
        if state != "stuck" and box and isinstance(box[-1], BaseException):
            raise box[-1]  # else it is what has stopped it
        at = None if where is None else place_of(where)
        answers = () if state == "stuck" else tuple(box)
        return Outcome(answers, state, at, limitless, calls(), seconds=perf_counter() - began)

    def _send(self) -> Iterable[Any]:
        options = dict(self.options)
        if self.spec.scheduler == "sequence" and "flags" not in options:
            options.update(flags=_START | _END, correlation_id=next(_correlations))
        if self.decoupled:
            return self.repository.stream(self.model, self.inputs, **options)
        return [self.repository.infer(self.model, self.inputs, **options)]

    def _waits(self, hold: DelayedResponse, done: threading.Event) -> bool:
        """Whether the model waits without a time limit: it has had the time to reach any that it has."""
        until = monotonic() + self.timeout
        settled = monotonic() + 10 * _SLICE
        while not done.is_set() and monotonic() < settled:
            if hold.limitless:
                return True
            done.wait(_SLICE)
        loops = hold.loops
        with put_forward(loops, HOUR):
            done.wait(max(10 * _SLICE, 3 * self.usual) if loops else until - monotonic())
        return bool(loops) and not done.is_set()

    def _where(self, root: Any) -> FrameRecord | None:
        """The line that the model is at, of those that run for this request."""
        senders = [t.execution for t in list(root.children)] + list(root._inline or ())
        return next(filter(None, (place_of_sender(each) for each in senders if each is not None)), None)


def _either(done: threading.Event, entered: threading.Event | None, seconds: float) -> bool:
    """Wait until one of two events has come; whether one has."""
    if entered is None:
        return done.wait(seconds)
    until = monotonic() + seconds
    while not (done.is_set() or entered.is_set()):
        if monotonic() > until:
            return False
        done.wait(_SLICE)
    return True


def in_flight(models: Iterable[LoadedModel]) -> list[str]:
    """Return the names of the models that have requests to answer."""
    return [
        m.name for m in models if m.scheduler.pending or any(i.holder is not None or i.serving for i in m.instances)
    ]


def idle(models: Iterable[LoadedModel], seconds: float) -> list[str]:
    """Wait until models have nothing to answer any more; return the names of those that have then."""
    every = list(models)
    until = monotonic() + seconds
    while (left := in_flight(every)) and monotonic() < until:
        threading.Event().wait(_SLICE)
    return left


def own_threads() -> set[threading.Thread]:
    """Return the threads that run now and that are none of the engine's."""
    ours = ("bls-worker", "bls-drill", "bls-")
    with contextlib.suppress(RuntimeError):
        return {t for t in threading.enumerate() if not t.name.startswith(ours)}
    return set()
