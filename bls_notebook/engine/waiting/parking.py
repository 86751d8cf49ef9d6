"""A place for one thread to wait until another lets it go on.

Guarantees: `unpark` before `park` is not lost; `park` gives way to Ctrl-C on every platform.
"""

from __future__ import annotations

import sys
import threading
import time

from .ctrl_c import may_be_interrupted

# On Windows a wait without a limit cannot be interrupted by Ctrl-C.
_SLICE = 0.1 if sys.platform == "win32" else threading.TIMEOUT_MAX


class Parker:
    """One wait of one thread."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def unpark(self) -> None:
        """Let the thread go on; calling it again does nothing."""
        try:
            self._lock.release()
        except RuntimeError:
            pass

    def park(self, seconds: float | None = None) -> bool:
        """Wait until `unpark`; False where `seconds` went by first."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = _SLICE if deadline is None else min(_SLICE, deadline - time.monotonic())
            if self._lock.acquire(timeout=max(0.0, left)):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False


may_be_interrupted(Parker.park.__code__, waits=True)
