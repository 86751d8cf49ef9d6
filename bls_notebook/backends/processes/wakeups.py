"""`Wakeups`: wake the other end of a channel on the processor that the sender is about to leave.

Linux wakes a thread on an idle processor, which a virtual machine has to start by an interrupt: 40 µs, where the
processor of the sender needs 2 (see `engine/waiting/home_threads.py`). So a thread that woke slowly says with its next
messages that it waits, and the sender of the answer, if it waits next, too, binds that thread to its own processor.

Guarantees: a thread is bound only while it sleeps, so code of models runs on all processors that it may use.
"""

from __future__ import annotations

import ctypes
import os
from threading import get_native_id
from time import perf_counter_ns
from typing import Any

SLOW_NS = 20_000  # of a wake-up
NEAR_WAKES = 64  # how many wake-ups are made near the sender after a slow one
# Its functions keep the GIL.
_libc: Any = ctypes.PyDLL(None) if hasattr(os, "sched_setaffinity") else None
_CAN_BIND = hasattr(_libc, "sched_getcpu") and (os.cpu_count() or 1) > 1
_Processors = ctypes.c_uint64 * 16  # a bit for each, as Linux has them
_SIZE = ctypes.sizeof(_Processors)


class Wakeups:
    """The wake-ups of one end of a channel, in which each end waits for the other."""

    def __init__(self) -> None:
        self._near = 0  # wake-ups that are still to be made near the sender
        self._allowed = _Processors()  # of this thread, while the other end may bind it
        self._may_be_bound = False
        self._thread = self._processors = 0  # of the other end, which waits: native ID, and its first 64 processors
        self._one = _Processors()

    def wait_next(self) -> tuple[int, int, int, bool]:
        """Bind the other end's thread; return the time, this thread that waits and its processors, whether it did."""
        bound = False
        if self._thread:
            processor = _libc.sched_getcpu()
            if self._processors >> processor & 1:
                self._one[0] = 1 << processor
                bound = not _libc.sched_setaffinity(self._thread, _SIZE, self._one)
            self._thread = 0
        if self._near <= 0 or _libc.sched_getaffinity(0, _SIZE, self._allowed) < 0:
            return perf_counter_ns(), 0, 0, bound
        self._near -= 1
        self._may_be_bound = True
        return perf_counter_ns(), get_native_id(), self._allowed[0], bound

    def woken(self, sent: int, thread: int, processors: int, bound: bool) -> None:
        """Note what came with a message that this thread has waited for."""
        self._thread, self._processors = thread, processors
        if bound:
            self.free()
        elif _CAN_BIND and perf_counter_ns() - sent > SLOW_NS:
            self._near = NEAR_WAKES

    def free(self) -> None:
        """Let this thread run on all its processors."""
        if self._may_be_bound:
            self._may_be_bound = False
            _libc.sched_setaffinity(0, _SIZE, self._allowed)
