"""`JobQueue`: the queue of one thread, to which any thread may post.

A sender usually waits for the thread that it wakes. Linux prefers to wake a thread on another, idle processor, which a
virtual machine has to start by an interrupt: that takes 40 µs, and as long again for the way back. On the processor
that the sender is about to leave it takes 1 or 2 µs. So after a slow wake-up, the next ones are made there: the
sleeping thread is bound to the sender's processor, and frees itself before it does anything else.

Guarantees: jobs come in the order in which they were put. `put` never blocks. A thread is bound only while it sleeps,
so the code of its jobs, and the threads that this code starts, may run on all processors that the thread may use.
Without `eventfd` (only Linux has it), or with too many open files, the queue is Python's own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections import deque
from functools import partial
from queue import SimpleQueue
from time import perf_counter_ns
from typing import Any, Protocol

from .worker_threads import when_dropped

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


# Its functions keep the GIL; those of `os` let other threads run meanwhile.
_libc: Any = ctypes.PyDLL(None) if hasattr(os, "eventfd") else None


class _PlainQueue(SimpleQueue[Any]):
    """Python's own queue."""

    put_and_keep_gil = SimpleQueue.put

    def bind_sender(self) -> None:
        """Do nothing."""


def new_queue() -> JobQueue:
    """Return a queue for the jobs of one thread."""
    if hasattr(_libc, "sched_getcpu") and _EventQueue.open_files < MOST_FILES:
        with contextlib.suppress(OSError):  # too many open files
            return _EventQueue()
    return _PlainQueue()
