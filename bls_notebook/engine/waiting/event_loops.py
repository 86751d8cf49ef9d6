"""Event loops for model code: one for each instance that needs one, and mailboxes to post to any loop.

Guarantees: the coroutines of each instance run in their own thread, so code that blocks stalls no other model. Any
thread may call `post`; it wakes a loop once for many results, and does nothing if the loop is closed. A loop that runs
model code is registered as waiting while it sleeps; before that, the wait graph checks that its results can still
arrive. The notebook's own loops are not changed.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

from bls_notebook.devices import cupy_memory_hook
from bls_notebook.engine.exception_text import THREAD_HOME, ModelHome, describe, is_a
from bls_notebook.pb_utils._runtime import caller_var

from .interrupts import Interrupted, in_handler, may_be_interrupted
from .stack_frames import call_in, stack_of, variables_of
from .worker_threads import Wakeup


class WatchedSelector:
    """A loop's selector, which registers the loop as waiting while it sleeps."""

    __slots__ = ("__weakref__", "_inner", "_loop", "executions", "idle", "jobs")

    # Wait and be registered as asleep; set by `deadlock`.
    sleep: Callable[[WatchedSelector, float | None], Any]

    def __init__(self, loop: Any) -> None:
        self._loop = ref(loop)  # weak, because the loop refers to this selector
        self.idle = False
        self.executions: WeakSet[Any] = WeakSet()  # `Execution`s whose requests are sent from here
        self.jobs: dict[int, WeakSet[Job]] = {}  # by executor
        self._inner = loop._selector
        loop._selector = loop.bls_selector = self
        loop.run_in_executor = partial(_run_in_executor, ref(loop))

    @property
    def loop(self) -> Any:
        return self._loop()

    def select(self, timeout: float | None = None) -> Any:
        if (timeout is not None and timeout <= 0) or not self.executions:
            return self._inner.select(timeout)
        self.idle = True
        try:
            return WatchedSelector.sleep(self, timeout)
        finally:
            self.idle = False

    @property
    def listens(self) -> bool:
        """True if the loop also waits for connections, processes or signals."""
        if not hasattr(self._inner, "get_map"):
            return True  # unknown, as on Windows
        return len(self._inner.get_map()) > 1 or bool(getattr(self.loop, "_signal_handlers", None))

    def wait(self, timeout: float | None) -> Any:
        return self._inner.select(timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


may_be_interrupted(WatchedSelector.wait.__code__, waits=True)

# The sleeping threads, with the `Ticket` whose response (or turn) each waits for, or the selector of its loop.
blocked: dict[int, Any] = {}


def wake_loop_of(thread: int) -> None:
    """Wake the loop in which a thread sleeps, if any, so that an exception set in the thread is raised."""
    watched = blocked.get(thread)
    loop = watched.loop if isinstance(watched, WatchedSelector) else None
    if loop is not None:
        with contextlib.suppress(RuntimeError):  # closed just now
            loop.call_soon_threadsafe(int)


def watch_loop(loop: Any, execution: Any) -> None:
    """Watch a loop that model code runs itself (`asyncio.run`), so that its waits are registered."""
    watched = getattr(loop, "bls_selector", None)
    if watched is None:
        if not hasattr(getattr(loop, "_selector", None), "select"):
            return  # not one of asyncio's own loops
        watched = WatchedSelector(loop)
        watch_callers(execution)
    watched.executions.add(execution)


_runs_a_loop = asyncio.BaseEventLoop.run_forever.__code__


def watch_callers(execution: Any) -> None:
    """Watch the loops in which callers wait for another thread: the last in this chain is the current thread."""
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
                loop.call_soon_threadsafe(int)  # wake it, so that it registers when it sleeps again
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
        self.thread = 0  # ident of the thread that runs it; 0 before and after
        self.state = "waiting"  # then "running", then "over"
        self.peers = peers  # all calls in the same executor
        peers.add(self)


# Calls that began before their loop was watched.
_calls: WeakKeyDictionary[concurrent.futures.Future[Any], Job] = WeakKeyDictionary()


def job_of(future: Any) -> Job | None:
    """Return the executor call behind a future, or None."""
    known: Job | None = getattr(future, "_bls_job", None)
    if known is None and _calls:
        for callback, *_ in getattr(future, "_callbacks", None) or ():
            for cell in getattr(callback, "__closure__", None) or ():
                if isinstance(cell.cell_contents, concurrent.futures.Future):
                    return _calls.get(cell.cell_contents)
    return known


def _run_in_executor(weak: ref[Any], executor: Any, func: Any, *args: Any) -> Any:
    """Replace a loop's `run_in_executor`: also record which thread runs the call."""
    loop: Any = weak()
    job = Job(loop.bls_selector.jobs.setdefault(id(executor), WeakSet()))

    def call(*arguments: Any) -> Any:
        job.thread, job.state = threading.get_ident(), "running"
        if cupy_memory_hook.used:
            cupy_memory_hook.follow()
        try:
            return func(*arguments)
        finally:
            job.thread, job.state = 0, "over"

    future = type(loop).run_in_executor(loop, executor, call, *args)
    future._bls_job = job
    return future


log = logging.getLogger("bls_notebook")


class Mailbox:
    """Collects callbacks for a loop, so that many cost one wake-up of the loop."""

    __slots__ = ("_calls", "_loop", "_wakeup")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)  # weak: a posted callback must not keep the loop alive
        self._calls: deque[Callable[[], None]] = deque()
        self._wakeup = Wakeup()

    def post(self, call: Callable[[], None]) -> None:
        self._calls.append(call)
        if self._wakeup.taken:
            self._wake()

    def _wake(self) -> None:
        loop = self._loop()
        try:
            if loop is None:
                raise RuntimeError
            wakeup = Wakeup(self._drain)
            loop.call_soon_threadsafe(wakeup)
            self._wakeup = wakeup
        except RuntimeError:
            if loop is not None and not loop.is_closed():
                raise  # such as RecursionError, a subclass
            self._calls.clear()  # a closed loop runs no callbacks

    def _drain(self) -> None:
        try:
            while self._calls:
                call = self._calls.popleft()
                try:
                    call()
                except Exception as error:  # must not keep the calls behind it from running
                    context = {"message": "A callback of bls_notebook failed", "exception": error}
                    asyncio.get_running_loop().call_exception_handler(context)
        finally:
            if self._calls:
                self._wake()


def mailbox(loop: asyncio.AbstractEventLoop) -> Mailbox:
    box: Mailbox | None = getattr(loop, "_bls_mailbox", None)
    if box is None:
        box = Mailbox(loop)
        with contextlib.suppress(AttributeError):  # a loop that accepts no attributes gets a new one each time
            loop._bls_mailbox = box  # type: ignore[attr-defined]
    return box


class RequestFuture(asyncio.Future):  # type: ignore[type-arg]
    """A future of one request's response, or of its response iterator."""

    __slots__ = ("_box", "_stream", "ticket")

    ticket: Any  # a `Ticket`, whose module imports this one indirectly
    _box: Mailbox
    _stream: Any

    def _on_response(self) -> None:
        ticket = self.ticket
        if ticket.on_response is not None:
            ticket.on_response = None  # the future needs the first response only
            self._box.post(self._complete)

    def _complete(self) -> None:
        if self.done():
            return
        if self._stream is not None:
            self.set_result(self._stream)
            return
        ticket = self.ticket
        taken = ticket.take()
        if taken is not None:
            response = taken[0]
            if response._error is not None and ticket.parent is not None:
                ticket.parent.note_error(response)
            self.set_result(response)

    def cancel(self, msg: Any = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled and in_handler():
            threading.Timer(0, self.ticket.abandon).start()
        elif cancelled:
            self.ticket.abandon()
        return cancelled


def response_of(ticket: Any, loop: asyncio.AbstractEventLoop, stream: Any = None) -> RequestFuture:
    """Return a future of a ticket's first response, or of `stream`. Call this before the ticket is queued."""
    future = RequestFuture(loop=loop)
    future.ticket = ticket
    future._box = mailbox(loop)
    future._stream = stream
    ticket.on_response = future._on_response
    return future


class _ModelEventLoop(asyncio.SelectorEventLoop):
    """An event loop that records which execution each task belongs to."""

    def create_task(self, coro: Any, **options: Any) -> Any:
        task = super().create_task(coro, **options)
        context: Context | None = options.get("context")
        owner = context.get(caller_var) if context is not None else caller_var.get()
        tasks = getattr(owner, "tasks", None)
        if tasks is not None:
            tasks.add(task)
        return task

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Log an uncaught exception, even if asyncio's log cannot format it."""
        try:
            super().default_exception_handler(context)
        except BaseException:  # raised by the exception's own class, while it was formatted
            error = context.get("exception")
            log.error("%s: %s", context.get("message"), "" if error is None else describe(error).message)


class ModelLoop:
    """An event loop with its own thread, for an instance; `home` has the modules of the instance."""

    def __init__(self, name: str, home: ModelHome | None = None) -> None:
        self.loop = _ModelEventLoop()
        self.selector = WatchedSelector(self.loop)
        self.executions: WeakSet[Any] = self.selector.executions
        self._mailbox = mailbox(self.loop)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"bls-loop-{name}", daemon=True)
        if home is not None:  # callbacks posted without a context belong to the model too
            setattr(self._thread, THREAD_HOME, home.reference)
        try:
            self._thread.start()
        except BaseException:
            self.stop()  # the thread may have started before the exception
            raise
        _loops.add(self)

    @property
    def thread(self) -> int:
        return self._thread.ident or 0

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        if cupy_memory_hook.used:
            cupy_memory_hook.follow()
        try:
            while not self._stopping:
                try:
                    self.loop.run_forever()  # also returns if a model stops the loop, which then starts again
                except Interrupted:
                    pass  # arrived just after the code that it was meant for had ended
                except BaseException as error:  # asyncio does not catch sys.exit in a task
                    description = describe(error)
                    is_exit = is_a(error, SystemExit, KeyboardInterrupt)
                    text = description.kind if is_exit else description.message
                    log.error("%s in %s; its loop continues", text, self._thread.name)
        finally:
            pending = [t for t in asyncio.all_tasks(self.loop) if not t.done()]
            for task in pending:
                task.cancel()
            if pending:
                self.loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def post(self, call: Callable[[], None]) -> None:
        self._mailbox.post(call)

    def stop(self) -> None:
        """End the loop without waiting; its unfinished tasks are cancelled."""
        self._stopping = True
        try:
            self.loop.call_soon_threadsafe(self.loop.stop)
        except RuntimeError:
            pass


def in_every_loop(call: Callable[[], None]) -> None:
    for loop in list(_loops):
        loop.post(call)


_loops: WeakSet[ModelLoop] = WeakSet()
may_be_interrupted(ModelLoop._run.__code__)
