"""Event loops that say when they have nothing left to do but wait.

Guarantees: a loop that runs a model's code is registered as waiting while it sleeps, as a thread is that
waits for a response, and before it falls asleep the wait graph is asked whether what it waits for can
still come. Loops of the notebook's own are left alone. A watched loop works as before.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

from bls_notebook.devices import pool_hooks

from .ctrl_c import may_be_interrupted
from .frames import call_in
from .stacks import stack_of, variables_of


class WatchedSelector:
    """A loop's selector, which tells when its loop falls asleep."""

    __slots__ = ("__weakref__", "_inner", "_loop", "executions", "idle", "jobs")

    # Waits, registered as asleep; set by `blocking`.
    sleep: Callable[[WatchedSelector, float | None], Any]

    def __init__(self, loop: Any) -> None:
        self._loop = ref(loop)  # which holds this
        self.idle = False
        self.executions: WeakSet[Any] = WeakSet()  # `Execution`s whose requests are sent from here
        self.jobs: dict[int, WeakSet[Job]] = {}  # by executor
        self._inner = loop._selector
        loop._selector = loop.bls_selector = self
        loop.run_in_executor = partial(_run_in_executor, ref(loop))

    @property
    def loop(self) -> Any:
        """The loop; None once it is gone."""
        return self._loop()

    def select(self, timeout: float | None = None) -> Any:
        """Wait, as the selector does."""
        if (timeout is not None and timeout <= 0) or not self.executions:
            return self._inner.select(timeout)
        self.idle = True
        try:
            return WatchedSelector.sleep(self, timeout)
        finally:
            self.idle = False

    @property
    def listens(self) -> bool:
        """Whether the loop waits for more than to be woken: for connections, processes, signals."""
        if not hasattr(self._inner, "get_map"):
            return True  # as on Windows
        return len(self._inner.get_map()) > 1 or bool(getattr(self.loop, "_signal_handlers", None))

    def wait(self, timeout: float | None) -> Any:
        """Wait, without telling anybody."""
        return self._inner.select(timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


may_be_interrupted(WatchedSelector.wait.__code__, waits=True)

# Threads that sleep in a wait: the `Ticket` whose response (or turn) they wait for, or the loop that sleeps.
blocked: dict[int, Any] = {}


def wake_loop_of(thread: int) -> None:
    """Wake the loop in which a thread sleeps, if any: what has been raised there is received then."""
    watched = blocked.get(thread)
    loop = watched.loop if isinstance(watched, WatchedSelector) else None
    if loop is not None:
        with contextlib.suppress(RuntimeError):  # closed just now
            loop.call_soon_threadsafe(int)


def watch_loop(loop: Any, execution: Any) -> None:
    """Watch a loop that model code runs by itself (`asyncio.run`), so that its waits are known."""
    watched = getattr(loop, "bls_selector", None)
    if watched is None:
        if not hasattr(getattr(loop, "_selector", None), "select"):
            return  # one of another make
        watched = WatchedSelector(loop)
        watch_callers(execution)
    watched.executions.add(execution)


_runs_a_loop = asyncio.BaseEventLoop.run_forever.__code__


def watch_callers(execution: Any) -> None:
    """Watch the loops in which sync executions wait for other threads, of which this one is the last."""
    worker = threading.get_ident()
    while execution is not None:
        if execution.model is not None and execution.thread:
            if execution.task is None and execution.thread != worker:
                with contextlib.suppress(RuntimeError):  # the loop was closed just now
                    _watch_loop_of_thread(execution, worker)
            worker = execution.thread
        execution = execution.parent


def _watch_loop_of_thread(execution: Any, worker: int) -> None:
    for frame in stack_of(execution.thread):
        if frame.f_code is _runs_a_loop:
            loop: Any = variables_of(frame)["self"]
            _name_call(worker)
            if execution not in getattr(getattr(loop, "bls_selector", None), "executions", ()):
                watch_loop(loop, execution)
                loop.call_soon_threadsafe(int)  # it may be asleep: so it falls asleep once more
            return


def _name_call(worker: int) -> None:
    future = call_in(stack_of(worker))
    if future is not None and future not in _calls:
        job = _calls[future] = Job(WeakSet())
        job.thread, job.state = worker, "running"


class Job:
    """A call in an executor, on behalf of a coroutine."""

    __slots__ = ("__weakref__", "peers", "state", "thread")

    def __init__(self, peers: WeakSet[Job]) -> None:
        self.thread = 0  # of the thread that runs it, 0 before and after
        self.state = "waiting"  # then "running", then "over"
        self.peers = peers  # the calls given to the same executor
        peers.add(self)


# Those that began before their loop was watched.
_calls: WeakKeyDictionary[concurrent.futures.Future[Any], Job] = WeakKeyDictionary()


def job_of(future: Any) -> Job | None:
    """Return the executor call behind a future, None where there is none that is known."""
    known: Job | None = getattr(future, "_bls_job", None)
    if known is None and _calls:
        for callback, *_ in getattr(future, "_callbacks", None) or ():
            for cell in getattr(callback, "__closure__", None) or ():
                if isinstance(cell.cell_contents, concurrent.futures.Future):
                    return _calls.get(cell.cell_contents)
    return known


def _run_in_executor(weak: ref[Any], executor: Any, func: Any, *args: Any) -> Any:
    """Run a call in an executor as the loop's class does, and remember which thread runs it."""
    loop: Any = weak()
    job = Job(loop.bls_selector.jobs.setdefault(id(executor), WeakSet()))

    def call(*arguments: Any) -> Any:
        job.thread, job.state = threading.get_ident(), "running"
        if pool_hooks.used:
            pool_hooks.follow()
        try:
            return func(*arguments)
        finally:
            job.thread, job.state = 0, "over"

    future = type(loop).run_in_executor(loop, executor, call, *args)
    future._bls_job = job
    return future
