"""Worker threads that are kept for reuse.

Guarantees: `start_in_thread` never waits, and is one step for Ctrl-C and for every other exception: the
job is in the queue then, or nothing has happened. While the pool is in use one worker more than needed waits
for a job; it is a worker that takes a job, never who gives one, that starts the next. A job runs in its
thread alone; a worker that has been idle for a while ends; workers are daemons, so they never keep the
kernel from ending. A job that raises is reported to `threading.excepthook` and costs nobody else
anything.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from bls_notebook.devices import pool_hooks

IDLE_SECONDS = 10.0

_jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
_lock = threading.Lock()
_idle = 0  # workers that wait for a job, those that are being started included
_numbers = itertools.count(1)


def _start_worker() -> None:
    threading.Thread(target=_work, name=f"bls-worker-{next(_numbers)}", daemon=True).start()


def ready() -> None:
    """Make sure that a worker waits for the first job; to be called before `start_in_thread`."""
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
        if pool_hooks.used:
            pool_hooks.follow()
        try:
            job()
        except BaseException as error:
            threading.excepthook(
                threading.ExceptHookArgs(
                    (type(error), error, error.__traceback__, threading.current_thread())
                )
            )
        del job  # what it refers to is not kept while idle
        with _lock:
            _idle += 1


def forget_workers() -> None:
    """Begin anew, in a forked child."""
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
        """Make the call: what is wanted from now on takes another."""
        self.taken = True
        if self._call is not None:
            self._call()
