"""Event loops for model code: one for each instance that needs one, and mailboxes to post to any loop.

Guarantees: the coroutines of each instance run in their own thread, so code that blocks stalls no other model. Any
thread may call `post`; it wakes a loop once for many results, and does nothing if the loop is closed. Before the loop
of an instance sleeps, the wait graph checks that its results can still arrive. Other loops, such as one that a model
runs by `asyncio.run` or the notebook's, are not changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import selectors
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any
from weakref import WeakSet, ref

from bls_notebook.devices import cupy_memory_hook
from bls_notebook.engine.exception_text import THREAD_HOME, ModelHome, describe, is_a
from bls_notebook.pb_utils._runtime import caller_var

from .interrupts import Interrupted, in_handler, may_be_interrupted
from .worker_threads import Wakeup

log = logging.getLogger("bls_notebook")


class WatchedSelector(selectors.DefaultSelector):
    """The selector of an instance's loop. While the loop serves requests, `sleep` decides how it sleeps."""

    # Call `wait`, with `idle` set meanwhile; assigned by `deadlocks.detection`.
    sleep: Callable[[WatchedSelector, float | None], Any]

    def __init__(self) -> None:
        super().__init__()
        self.idle = False
        self.executions: WeakSet[Any] = WeakSet()  # `Execution`s that run in the loop

    def select(self, timeout: float | None = None) -> Any:
        if (timeout is not None and timeout <= 0) or not self.executions:
            return self.wait(timeout)
        return WatchedSelector.sleep(self, timeout)

    def wait(self, timeout: float | None) -> Any:
        return super().select(timeout)

    @property
    def listens(self) -> bool:
        """True if the loop also waits for connections: one file is its own, for `call_soon_threadsafe`."""
        return len(self.get_map()) > 1


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


class ModelEventLoop(asyncio.SelectorEventLoop):
    """An event loop that records which execution each task belongs to, and when it sleeps."""

    def __init__(self) -> None:
        self.selector = WatchedSelector()
        super().__init__(self.selector)

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
        self.loop = ModelEventLoop()
        self.selector = self.loop.selector
        self.executions = self.selector.executions
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


def loops() -> list[ModelLoop]:
    return list(_loops)


def in_every_loop(call: Callable[[], None]) -> None:
    for loop in loops():
        loop.post(call)


_loops: WeakSet[ModelLoop] = WeakSet()
may_be_interrupted(ModelLoop._run.__code__)
