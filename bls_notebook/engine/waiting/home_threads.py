"""`HomeThread`: the thread on which an instance's code runs, as on Triton, where each instance is a process.

A home runs *steps* (`initialize`, `finalize`: methods of its `half`, the model's side of the instance, by name) and
serves *work* (requests) with `serve`, which the model's scheduler sets. Both come by `post` and run in order.

Guarantees: everything runs on one thread, in a context that lasts as long as the thread. Of the sender's context only
the variables that route output to a cell follow a request. A home without work costs no processor time. A wait for a
step ends with Ctrl-C within `SECONDS_TO_STOP`, also if its code goes on; the home then runs what comes next when that
code ends. A home that was stopped runs what was posted before.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any

from bls_notebook.devices import cupy_memory_hook

from .busy_code import report_if_busy
from .idle_memory import idle_memory
from .interrupts import RETRY_SECONDS, Interrupted, clear_interrupt, interrupt_thread, may_be_interrupted
from .job_queue import new_queue
from .main_thread import as_main_thread
from .parker import Parker, acting_for, requester
from .worker_threads import when_dropped

# The variables that say to which cell output belongs: of ipykernel, and of the log of cells.
ROUTES = {"parent_header", "shell_parent", "shell_parent_ident", "bls_cell"}
Routes = list[tuple[ContextVar[Any], Any]]  # of these, those that a context has set, with their values
SECONDS_TO_STOP = 0.1


class HomeStep:
    """A method of a home's `half`, by name, with its arguments; `then` is called when it has ended."""

    __slots__ = (
        "__weakref__", "_guard", "arguments", "caller", "cancelled", "context", "error", "finished", "name", "then",
        "thread", "value",
    )  # fmt: skip

    def __init__(self, name: str, arguments: tuple[Any, ...], then: Callable[[HomeStep], None]) -> None:
        self.name, self.arguments, self.then = name, arguments, then
        self.context = copy_context()
        self.caller = requester()
        self.value: Any = None
        self.error: BaseException | None = None
        self.thread = 0  # on which it runs; 0 before
        self.cancelled = self.finished = False
        self._guard = threading.Lock()

    def result(self) -> Any:
        """Return its value, or raise its exception. Call this once."""
        __tracebackhide__ = True
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
            return self.value
        finally:
            self.value = error = None  # breaks a reference cycle


class HomeThread:
    """The thread of one instance."""

    __slots__ = (
        "__weakref__", "_bind_sender", "_context", "_put", "_put_and_keep_gil", "_routed", "_stopped", "_thread",
        "_tokens", "half", "serve",
    )  # fmt: skip

    died = ""  # why it can run no code any more; a thread never dies

    def __init__(self, name: str, half: Any) -> None:
        jobs = new_queue()
        self._put, self._put_and_keep_gil, self._bind_sender = jobs.put, jobs.put_and_keep_gil, jobs.bind_sender
        self._stopped = False
        when_dropped(self, partial(jobs.put, None))  # an instance that nobody closes
        self.half = half
        self.serve: Callable[[Any], None] = _unserved
        self._tokens: list[tuple[ContextVar[Any], Any]] = []
        self._routed: Routes = []
        self._context = Context()  # as the last step left it
        self._thread = threading.Thread(
            target=self._context.copy().run, args=(_live, name, jobs.get), name=f"bls-home-{name}", daemon=True
        )
        self._thread.start()

    @property
    def ident(self) -> int:
        return self._thread.ident or 0

    def post(self, work: Any) -> None:
        """Let `serve` have work, on the home's thread."""
        self._put_and_keep_gil((self, work))

    def post_and_wait(self, work: Any, parker: Parker, seconds: float) -> None:
        """As `post`, then wait for the parker. If this raises, `work.posted` says whether the work was posted."""
        allowed = self._bind_sender()
        try:
            self._put((self, work))
            work.posted = True
            parker.park(seconds)
        finally:
            if allowed is not None:
                os.sched_setaffinity(0, allowed)

    def begin(self, name: str, *arguments: Any, then: Callable[[HomeStep], None]) -> HomeStep:
        """Run a step soon; `then` is called with it on the home's thread."""
        step = HomeStep(name, arguments, then)
        self.post(step)
        return step

    def call(self, name: str, *arguments: Any) -> Any:
        """Return the result of a step. Ctrl-C interrupts the step."""
        __tracebackhide__ = True
        parker = Parker()
        step = self.begin(name, *arguments, then=lambda _: parker.unpark())
        try:
            parker.park()
        except BaseException:
            step.cancelled = True
            self.interrupt(step)
            report_if_busy(step, step.name)
            try:
                parker.park(SECONDS_TO_STOP)
            finally:
                acting_for.pop(self.ident, None)  # nobody waits for code that goes on
            raise
        return step.result()

    def interrupt(self, work: Any, seconds: float = RETRY_SECONDS) -> None:
        """Interrupt the code of a step or an execution, if it runs; try again later while the engine runs for it."""
        with work._guard:
            if not work.thread or work.finished:
                return
            work.cancelled = True
            if interrupt_thread(work.thread):
                return
        retry = threading.Timer(seconds, self.interrupt, (work, min(2 * seconds, 0.1)))
        retry.daemon = True
        retry.start()

    def stop(self) -> None:
        """End the thread after what has been posted."""
        if not self._stopped:
            self._stopped = True
            self._put(None)

    def route(self, context: Context) -> None:
        """Send output to the cell of a sender's context. Called on the thread."""
        if self._tokens and all(context.get(var) is value for var, value in self._routed):
            return  # the same cell
        self._set_routes(_routes_of(context))

    def follow(self, sender: HomeThread) -> None:
        """As `route`, for a request that another home sends."""
        if self._routed is not sender._routed:
            self._set_routes(sender._routed)

    def _set_routes(self, routes: Routes) -> None:
        for var, token in self._tokens:
            var.reset(token)
        self._routed = routes
        self._tokens = [(var, var.set(value)) for var, value in routes]

    def context_for(self, sender: Context) -> Context:
        """Return a context for a coroutine of the instance: that of `initialize`, with output to the sender's cell."""
        context = self._context.copy()
        for var, value in _routes_of(sender):
            context.run(var.set, value)
        return context

    def run(self, step: HomeStep) -> None:
        """Run a step. Called on the thread."""
        thread = threading.get_ident()
        self.route(step.context)
        with step._guard:
            if step.cancelled:
                step.finished = True
            else:
                step.thread = thread
        acting_for[thread] = step.caller
        try:
            if not step.finished:
                step.value = getattr(self.half, step.name)(*step.arguments)
        except BaseException as error:
            step.error = error
        finally:
            acting_for.pop(thread, None)
            with step._guard:
                step.finished = True
                if step.cancelled and step.thread:
                    clear_interrupt(step.thread)
            self._context = copy_context()
            step.then(step)


def _routes_of(context: Context) -> Routes:
    # Several variables have one name (each stream of ipykernel has its own), and not all change with the cell.
    return [(var, value) for var, value in context.items() if var.name in ROUTES]


def _unserved(work: Any) -> None:
    raise RuntimeError("no scheduler serves this instance")


def _live(name: str, get: Callable[[], tuple[HomeThread, Any] | None]) -> None:
    # Threads that the model starts are no daemons by default, as if this were the main thread of a process.
    threading.current_thread()._daemonic = False  # type: ignore[attr-defined]
    with as_main_thread(name):
        _work(get)


def _work(get: Callable[[], tuple[HomeThread, Any] | None]) -> None:
    while True:
        try:
            job = get()
            if job is None:
                return
            home, work = job
            if cupy_memory_hook.used:
                cupy_memory_hook.follow()
            if work.__class__ is HomeStep:
                home.run(work)
            else:
                home.serve(work)
            if not idle_memory.armed:
                idle_memory.arm()
        except Interrupted:
            pass  # arrived just after the code that it was meant for had ended
        except BaseException as error:
            threading.excepthook(
                threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
            )
        home = work = job = None  # type: ignore[assignment]  # an idle home must not keep anything alive


may_be_interrupted(HomeThread.run.__code__)
