"""`HomeThread`: the thread on which an instance's code runs, as on Triton, where each instance is a process.

A home runs *steps* (`initialize`, `finalize`: methods of its `half`, the model's side of the instance, by name) and
serves *work* (requests) with `serve`, which the model's scheduler sets. Both come by `post` and run in order.

Guarantees: everything runs on one thread, in a context that lasts as long as the thread. Of the sender's context only
the variables that route output to a cell follow a request. A home without work costs no processor time. A wait for a
step ends with Ctrl-C within `SECONDS_TO_STOP`, also if its code continues; the home runs the next step when that
code ends. A stopped home runs the steps that were posted before.

A sender usually waits for the thread that it wakes. Linux prefers to wake a thread on another, idle processor, which a
virtual machine has to start by an interrupt: that takes 40 µs, and as long again for the way back. On the processor
that the sender is about to leave it takes 1 or 2 µs. So after a slow wake-up, the next ones are made there: the
sleeping thread is bound to the sender's processor, and frees itself before it does anything else.

The queue of jobs keeps their order, and `put` never blocks. A thread is bound only while it sleeps,
so the code of its jobs, and the threads that this code starts, may run on all processors that the thread may use.
Without `eventfd` (only Linux has it), or with too many open files, the queue is Python's own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from functools import partial
from time import perf_counter_ns
from typing import Any, Protocol

from bls_notebook.devices import cupy_memory_hook

from .busy_code import report_if_busy
from .idle_memory import idle_memory
from .interrupts import RETRY_SECONDS, Interrupted, clear_interrupt, interrupt_thread, may_be_interrupted
from .main_thread import as_main_thread
from .parker import Parker, acting_for, requester
from .worker_threads import SimpleQueue, threads_are_greenlets, when_dropped

# The variables that say to which cell output belongs: of ipykernel, and of the log of cells.
ROUTES = {"parent_header", "shell_parent", "shell_parent_ident", "bls_cell"}
Routes = list[tuple[ContextVar[Any], Any]]  # the ones that a context has set, with their values
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
        when_dropped(self, partial(jobs.put, None))  # an instance that is never closed
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
                acting_for.pop(self.ident, None)  # no caller waits for code that continues
            raise
        return step.result()

    def interrupt(self, work: Any, seconds: float = RETRY_SECONDS) -> None:
        """Interrupt the code of a step or an execution, if it runs; try again later while the engine runs for it."""
        process = getattr(self.half, "process", None)
        with work._guard:
            if not work.thread or work.finished:
                return
            work.cancelled = True
            if process is not None:  # the thread only waits for it
                process.interrupt()
                return
            if interrupt_thread(work.thread):
                return
        retry = threading.Timer(seconds, self.interrupt, (work, min(2 * seconds, 0.1)))
        retry.daemon = True
        retry.start()

    def stop(self) -> None:
        """End the thread after the posted steps."""
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
        """Return a context for a coroutine: the context of `initialize`, with output to the sender's cell."""
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


SLOW_NS = 20_000  # of a wake-up
BOUND_WAKES = 64  # how many wake-ups are made on the sender's processor after a slow one
MOST_FILES = 256  # eventfds of this process


class JobQueue(Protocol):
    """The queue of one thread."""

    def put(self, job: Any) -> None:
        """Append a job, and wake the thread."""

    def put_and_keep_gil(self, job: Any) -> None:
        """As `put`, for a sender that does not wait for the job: it keeps the GIL, so the thread starts later."""

    def bind_sender(self) -> set[int] | None:
        """Bind the sender to its processor if it is to be woken there; return the processors that it may use, or None.

        The sender puts a job and waits next, and then calls ``os.sched_setaffinity`` with this set.
        """

    def get(self) -> Any:
        """Wait for the next job and return it. Called only by the thread."""


class _EventQueue:
    """A queue whose thread sleeps in a read of an `eventfd`."""

    __slots__ = ("__weakref__", "_allowed", "_asleep", "_bound", "_fd", "_jobs", "_near", "_sent", "_thread")

    open_files = 0

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC)
        _EventQueue.open_files += 1
        when_dropped(self, partial(_close, self._fd))
        self._jobs: deque[Any] = deque()
        self._thread = 0  # native ID
        self._allowed: set[int] = set()  # the processors that the thread may use
        self._asleep = self._bound = False
        self._near = 0  # wake-ups that are still to be made near the sender
        self._sent = 0  # when a sleeping thread got the job that wakes it; 0 if its sender went on

    def put(self, job: Any) -> None:
        if self._asleep:
            if self._near > 0:
                self._near -= 1
                self._bind()
            self._sent = perf_counter_ns()
        self._jobs.append(job)  # what follows needs no memory
        os.eventfd_write(self._fd, 1)

    def put_and_keep_gil(self, job: Any) -> None:
        self._jobs.append(job)
        _libc.eventfd_write(self._fd, 1)

    def bind_sender(self) -> set[int] | None:
        if self._near <= 0:
            return None
        allowed, processor = os.sched_getaffinity(0), _libc.sched_getcpu()
        if processor not in allowed:
            return None
        os.sched_setaffinity(0, {processor})
        return allowed

    def _bind(self) -> None:
        processor = _libc.sched_getcpu()
        if processor in self._allowed:
            self._bound = True
            with contextlib.suppress(OSError):
                os.sched_setaffinity(self._thread, {processor})
                if not self._asleep:  # another sender has just woken it
                    os.sched_setaffinity(self._thread, self._allowed)

    def get(self) -> Any:
        if not self._jobs:
            self._sleep()
        return self._jobs.popleft()

    def _sleep(self) -> None:
        self._thread = self._thread or threading.get_native_id()
        self._asleep = True
        try:
            while not self._jobs:
                os.eventfd_read(self._fd)
        finally:
            self._asleep = False
        if self._bound:
            os.sched_setaffinity(0, self._allowed)
            self._bound = False
        elif self._sent and perf_counter_ns() - self._sent > SLOW_NS:
            self._allowed = os.sched_getaffinity(0)
            self._near = BOUND_WAKES
        self._sent = 0


def _close(fd: int) -> None:
    _EventQueue.open_files -= 1
    os.close(fd)


# Its functions keep the GIL; functions of `os` let other threads run meanwhile.
_libc: Any = ctypes.PyDLL(None) if hasattr(os, "eventfd") else None


class _PlainQueue(SimpleQueue[Any]):
    """Python's own queue."""

    put_and_keep_gil = SimpleQueue.put

    def bind_sender(self) -> None:
        """Do nothing."""


def new_queue() -> JobQueue:
    """Return a queue for the jobs of one thread; for a greenlet, one whose wait lets other greenlets run."""
    if not threads_are_greenlets and hasattr(_libc, "sched_getcpu") and _EventQueue.open_files < MOST_FILES:
        with contextlib.suppress(OSError):  # too many open files
            return _EventQueue()
    return _PlainQueue()
