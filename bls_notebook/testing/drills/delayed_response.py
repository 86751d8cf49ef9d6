"""`Hold`: keeps a request unanswered until it is let go, and tells whether anybody would have given up.

Nothing waits for long: who waits in the engine without a time limit is known at once (`limitless`), and the
time limits of event loops come sooner by their clocks being put forward.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.description import frame_at, home_of
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.idle_loops import blocked
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.records.errors import FrameRecord
from bls_notebook.repository.substitution.waiter import Waiter

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
