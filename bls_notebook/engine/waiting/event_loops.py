"""Event loops for model code: one for each instance that needs one, and mailboxes to post to any loop.

Guarantees: a model's coroutines run in a thread of their own, so code that blocks stalls no other model; `post` may be
called from any thread, wakes a loop once for many results, and does nothing if the loop is closed. A loop that runs
model code is registered as waiting while it sleeps; the wait graph is asked first whether its results can still
arrive. The notebook's own loops are left alone.
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

from .ctrl_c import Interrupted, may_be_interrupted
from .stack_frames import call_in, stack_of, variables_of
from .threads import Wakeup


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
        """Whether the loop also waits for connections, processes or signals."""
        if not hasattr(self._inner, "get_map"):
            return True  # as on Windows
        return len(self._inner.get_map()) > 1 or bool(getattr(self.loop, "_signal_handlers", None))

    def wait(self, timeout: float | None) -> Any:
        return self._inner.select(timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


may_be_interrupted(WatchedSelector.wait.__code__, waits=True)

# Threads that sleep in a wait: the `Ticket` whose response (or turn) they wait for, or the loop that sleeps.
blocked: dict[int, Any] = {}


def wake_loop_of(thread: int) -> None:
    """Wake the loop in which a thread sleeps, if any, so that it receives an exception raised there."""
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
    """Return the executor call behind a future, or None."""
    known: Job | None = getattr(future, "_bls_job", None)
    if known is None and _calls:
        for callback, *_ in getattr(future, "_callbacks", None) or ():
            for cell in getattr(callback, "__closure__", None) or ():
                if isinstance(cell.cell_contents, concurrent.futures.Future):
                    return _calls.get(cell.cell_contents)
    return known


def _run_in_executor(weak: ref[Any], executor: Any, func: Any, *args: Any) -> Any:
    """As the loop's class, and remember the thread that runs the call."""
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
    """Collects callbacks for a loop, so that many cost one wake-up."""

    __slots__ = ("_calls", "_loop", "_wakeup")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)  # which is known by its mailbox, and ends with nobody else
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
                raise  # RecursionError is one of them
            self._calls.clear()  # nobody is left to tell

    def _drain(self) -> None:
        try:
            while self._calls:
                call = self._calls.popleft()
                try:
                    call()
                except Exception as error:  # must not strand the calls behind it
                    told = {"message": "A callback of bls_notebook failed", "exception": error}
                    asyncio.get_running_loop().call_exception_handler(told)
        finally:
            if self._calls:
                self._wake()


def mailbox(loop: asyncio.AbstractEventLoop) -> Mailbox:
    found: Mailbox | None = getattr(loop, "_bls_mailbox", None)
    if found is None:
        found = Mailbox(loop)
        with contextlib.suppress(AttributeError):  # a loop that takes no attributes has one for each request
            loop._bls_mailbox = found  # type: ignore[attr-defined]
    return found


class RequestFuture(asyncio.Future):  # type: ignore[type-arg]
    """A future of the response, or of the iterator, of one request."""

    __slots__ = ("_box", "_stream", "ticket")

    ticket: Any  # a `Ticket`, whose module imports this one indirectly
    _box: Mailbox
    _stream: Any

    def _on_response(self) -> None:
        ticket = self.ticket
        if ticket.on_response is not None:
            ticket.on_response = None  # only the first response matters here
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
        if cancelled:
            self.ticket.abandon()
        return cancelled


def response_of(ticket: Any, loop: asyncio.AbstractEventLoop, stream: Any = None) -> RequestFuture:
    """Return a future of a ticket's first response, or of `stream`; the ticket is not queued yet."""
    future = RequestFuture(loop=loop)
    future.ticket = ticket
    future._box = mailbox(loop)
    future._stream = stream
    ticket.on_response = future._on_response
    return future


class _ModelEventLoop(asyncio.SelectorEventLoop):
    """Remembers which execution its tasks belong to."""

    def create_task(self, coro: Any, **options: Any) -> Any:
        task = super().create_task(coro, **options)
        context: Context | None = options.get("context")
        owner = context.get(caller_var) if context is not None else caller_var.get()
        tasks = getattr(owner, "tasks", None)
        if tasks is not None:
            tasks.add(task)
        return task

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Log an exception that nobody caught, even if asyncio's log cannot format it."""
        try:
            super().default_exception_handler(context)
        except BaseException:  # of the exception's class: to the loop it is as any other
            error = context.get("exception")
            log.error("%s: %s", context.get("message"), "" if error is None else describe(error).message)


class ModelLoop:
    """An event loop in a thread of its own, for an instance with these modules."""

    def __init__(self, name: str, home: ModelHome | None = None) -> None:
        self.loop = _ModelEventLoop()
        self.selector = WatchedSelector(self.loop)
        self.executions: WeakSet[Any] = self.selector.executions
        self._mailbox = mailbox(self.loop)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"bls-loop-{name}", daemon=True)
        if home is not None:  # what is posted to the loop without a context is its model's too
            setattr(self._thread, THREAD_HOME, home.reference)
        try:
            self._thread.start()
        except BaseException:
            self.stop()  # it may have been started all the same
            raise
        _loops.add(self)  # one whose thread could not be started belongs to nobody

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
                    self.loop.run_forever()  # ends also where a model stops the loop: then it goes on
                except Interrupted:
                    pass  # arrived just after the code that it was for
                except BaseException as error:  # sys.exit in a task goes through asyncio
                    told = describe(error)
                    words = told.kind if is_a(error, SystemExit, KeyboardInterrupt) else told.message
                    log.error("%s in %s; its loop goes on", words, self._thread.name)
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
        """End the loop without waiting; what still runs in it is cancelled."""
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
