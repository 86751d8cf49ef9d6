"""Worker threads that are kept for reuse, and `Parker`, a place for one thread to wait.

Guarantees: `start_in_thread` never waits and is atomic for Ctrl-C and any other exception: either the job is queued
or nothing happened. While the pool is in use, one more worker than needed waits for a job; the worker that takes a
job starts the next. Idle workers end after a while; workers are daemons. A job that raises is reported to
`threading.excepthook` and affects no other job. `unpark` before `park` is not lost; Ctrl-C ends `park` on every
platform.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from bls_notebook.devices import cupy_memory_hook

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
        try:
            self._lock.release()
        except RuntimeError:
            pass

    def park(self, seconds: float | None = None) -> bool:
        """Wait until `unpark`; False if `seconds` went by first."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = _SLICE if deadline is None else min(_SLICE, deadline - time.monotonic())
            if self._lock.acquire(timeout=max(0.0, left)):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False


may_be_interrupted(Parker.park.__code__, waits=True)


IDLE_SECONDS = 10.0

_jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
_lock = threading.Lock()
_idle = 0  # workers that wait for a job, those that are being started included
_numbers = itertools.count(1)


def _start_worker() -> None:
    threading.Thread(target=_work, name=f"bls-worker-{next(_numbers)}", daemon=True).start()


def ready() -> None:
    """Start a first worker; call before `start_in_thread`."""
    global _idle
    with _lock:
        if _idle:
            return
        _idle = 1
    try:
        _start_worker()
    except BaseException:
        _idle = 0
        raise


def _work() -> None:
    global _idle
    while True:
        try:
            job = _jobs.get(timeout=None if _idle == 1 else IDLE_SECONDS)  # the last one stays
        except Empty:
            with _lock:
                if _idle > 1:
                    _idle -= 1
                    return
            continue
        with _lock:
            last = _idle == 1
            if not last:
                _idle -= 1  # else the place is that of the worker that is started now
        if last:
            try:
                _start_worker()
            except RuntimeError:  # the system has no more threads, or Python ends: jobs wait for this one
                with _lock:
                    _idle -= 1
        if cupy_memory_hook.used:
            cupy_memory_hook.follow()
        try:
            job()
        except BaseException as error:
            threading.excepthook(
                threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
            )
        del job  # what it refers to is not kept while idle
        with _lock:
            _idle += 1


def forget_workers() -> None:
    """Reset the pool in a forked child."""
    global _idle
    _idle = 0
    while not _jobs.empty():
        _jobs.get_nowait()


def start_in_thread(job: Callable[[], None]) -> None:
    """Run `job()` in a worker thread, soon."""
    _jobs.put(job)  # all that has to happen: the rest is for a pool that nobody made ready
    if not _idle:
        with contextlib.suppress(RuntimeError):
            ready()


# The same for a destructor, which can run at any point of any thread, also while that thread holds the very
# lock that the job needs: no Python code, and no lock that Python code can hold. The pool must be ready.
later = _jobs.put


class Wakeup:
    """A call that somebody else is asked to make, and whether it is still to come.

    Who wants the call first sends a new one off, and only then puts it where others look: an exception in
    between costs a call too many, never one too few.
    """

    __slots__ = ("_call", "taken")

    def __init__(self, call: Callable[[], None] | None = None) -> None:
        self._call = call
        self.taken = call is None

    def __call__(self) -> None:
        self.taken = True
        if self._call is not None:
            self._call()
