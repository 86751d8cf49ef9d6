"""`Parker`: the one way in which a thread waits for another.

Guarantees: an `unpark` before `park` counts. Ctrl-C ends `park` on the main thread, on every platform, within
`SECONDS_TO_CTRL_C`. On a thread that runs an operation, `Operation.interrupt` ends it.
"""

from __future__ import annotations

import _thread
import threading
from time import monotonic
from typing import Any

from . import interrupts

# Python notices a Ctrl-C that comes just before the main thread begins to wait only when that wait ends, and on Windows
# one that comes during a wait.
SECONDS_TO_CTRL_C = 0.1

_get_ident = _thread.get_ident
_main = threading.main_thread().ident

# The threads that wait for a response, each with the `Ticket` of its request; guarded by the lock of the wait graph.
blocked: dict[int, Any] = {}
running: dict[int, Any] = {}  # the innermost `Operation` of each thread; it may end a wait early
acting_for: dict[int, int] = {}  # a thread that does another's work, and the other, which waits for it


def requester() -> int:
    """Return the ident of the thread for which this thread acts: its own, or the thread that waits for it."""
    thread = _get_ident()
    return acting_for.get(thread, thread)


class Parker:
    """Lets one thread wait once, until another calls `unpark`."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def unpark(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:
            pass

    def park(self, seconds: float = -1) -> bool:
        """Wait until `unpark`; return False if `seconds` (-1: no limit) passed first."""
        thread = _get_ident()
        if thread != _main:
            operation = running.get(thread)
            if operation is None:
                return self._lock.acquire(True, seconds)
            operation.begin_wait(self)
            try:
                return self._lock.acquire(True, seconds)
            finally:
                operation.end_wait()
        end = monotonic() + seconds
        while True:
            interrupts.raise_noted()
            pause = SECONDS_TO_CTRL_C if seconds < 0 else min(SECONDS_TO_CTRL_C, max(0.0, end - monotonic()))
            if self._lock.acquire(True, pause):
                return True
            if seconds >= 0 and monotonic() >= end:
                return False


interrupts.waits.add(Parker.park.__code__)
