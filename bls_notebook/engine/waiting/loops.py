"""Event loops: one of its own for each instance that needs one, and the way back into any loop.

Guarantees: a model's coroutines run in one thread that nothing else uses, so code that blocks stalls
nobody else; `post` may be called from any thread, wakes a loop once for many results, and is silent where
the loop has been closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any
from weakref import WeakSet, ref

from bls_notebook.devices import pool_hooks
from bls_notebook.engine.description import THREAD_HOME, ModelHome, describe, is_a
from bls_notebook.pb_utils._runtime import caller_var

from .ctrl_c import may_be_interrupted
from .idle_loops import WatchedSelector
from .interrupt import Interrupted
from .threads import Wakeup

log = logging.getLogger("bls_notebook")


class Mailbox:
    """Collects callbacks for a loop, so that many cost one wake-up."""

    __slots__ = ("_calls", "_loop", "_wakeup")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)  # which is known by its mailbox, and ends with nobody else
        self._calls: deque[Callable[[], None]] = deque()
        self._wakeup = Wakeup()

    def post(self, call: Callable[[], None]) -> None:
        """Run `call()` in the loop, soon."""
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
    """Return the mailbox of a loop; called by who runs it."""
    found: Mailbox | None = getattr(loop, "_bls_mailbox", None)
    if found is None:
        found = Mailbox(loop)
        with contextlib.suppress(AttributeError):  # a loop that takes no attributes has one for each request
            loop._bls_mailbox = found  # type: ignore[attr-defined]
    return found


class _ModelEventLoop(asyncio.SelectorEventLoop):
    """Remembers which execution its tasks belong to."""

    def create_task(self, coro: Any, **options: Any) -> Any:
        """Create a task, as the base class does."""
        task = super().create_task(coro, **options)
        context: Context | None = options.get("context")
        owner = context.get(caller_var) if context is not None else caller_var.get()
        tasks = getattr(owner, "tasks", None)
        if tasks is not None:
            tasks.add(task)
        return task

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Log an exception that nobody caught, as the base class does where the exception lets it."""
        try:
            super().default_exception_handler(context)
        except BaseException:  # of the exception's class: to the loop it is as any other
            error = context.get("exception")
            log.error("%s: %s", context.get("message"), "" if error is None else describe(error).message)


class ModelLoop:
    """An event loop in a thread of its own.

    `name`: of the instance that it is for. `home`: of that instance's modules.
    """

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
        """Identity of the loop's thread."""
        return self._thread.ident or 0

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        if pool_hooks.used:
            pool_hooks.follow()
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
        """Run `call()` in the loop's thread, soon."""
        self._mailbox.post(call)

    def stop(self) -> None:
        """End the loop: what still runs in it is cancelled. Waits for nothing."""
        self._stopping = True
        try:
            self.loop.call_soon_threadsafe(self.loop.stop)
        except RuntimeError:
            pass


def in_every_loop(call: Callable[[], None]) -> None:
    """Run `call()` in the thread of every model's loop, soon."""
    for loop in list(_loops):
        loop.post(call)


_loops: WeakSet[ModelLoop] = WeakSet()
may_be_interrupted(ModelLoop._run.__code__)
