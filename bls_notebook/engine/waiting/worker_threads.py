"""A pool of reusable worker threads.

Guarantees: `start_in_thread` never waits. An exception inside it, such as Ctrl-C, leaves the job either queued or
not queued, never half queued. While the pool is in use, one more worker than needed waits for a job; the worker that
takes a job starts the next worker. Workers are daemons and end after 10 s without a job; before Python 3.13, one may
stay until the next job, because `SimpleQueue.get` can miss its timeout. A job that raises is reported to
`threading.excepthook` and affects no other job.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import weakref
from collections.abc import Callable
from queue import Empty
from queue import SimpleQueue as SimpleQueue
from typing import Any

from bls_notebook.devices import cupy_memory_hook

_monkey = sys.modules.get("gevent.monkey")
threads_are_greenlets = _monkey is not None and _monkey.is_module_patched("threading")
if _monkey is not None and not threads_are_greenlets:
    SimpleQueue = _monkey.get_original("queue", "SimpleQueue")  # type: ignore[misc]  # gevent's wakes no other thread

IDLE_SECONDS = 10.0

_jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
_lock = threading.Lock()
_idle = 0  # workers that wait for a job or are being started
_numbers = itertools.count(1)


def _start_worker() -> None:
    threading.Thread(target=_work, name=f"bls-worker-{next(_numbers)}", daemon=True).start()


def ready() -> None:
    """Start a first worker; call this before `start_in_thread`."""
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
            job = _jobs.get(timeout=None if _idle == 1 else IDLE_SECONDS)  # the last idle worker stays
        except Empty:
            with _lock:
                if _idle > 1:
                    _idle -= 1
                    return
            continue
        with _lock:
            last = _idle == 1
            if not last:
                _idle -= 1  # the last one starts another worker, which takes its place
        if last:
            try:
                _start_worker()
            except RuntimeError:  # no more threads, or Python is shutting down: the jobs wait for this worker
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
        del job  # an idle worker must not keep the job's objects alive
        with _lock:
            _idle += 1


def forget_workers() -> None:
    """Reset the pool in a forked child."""
    global _idle
    _idle = 0
    while not _jobs.empty():
        _jobs.get_nowait()


def start_in_thread(job: Callable[[], None]) -> None:
    """Run `job()` soon in a worker thread."""
    _jobs.put(job)  # this suffices; the rest is for a pool without a worker
    if not _idle:
        with contextlib.suppress(RuntimeError):
            ready()


# As `start_in_thread`, for a destructor. A destructor can run at any point of any thread, even while that thread holds
# the lock that the job needs, so this is a single C function without a lock of ours. The pool must be `ready`.
later = _jobs.put


class _Dropped(weakref.ref[Any]):
    """A reference whose callback is a C function: Ctrl-C cannot strike it, and Python would drop the exception."""

    __slots__ = ("_function",)

    def __new__(cls, dropped: Any, function: Callable[[], object]) -> _Dropped:
        return super().__new__(cls, dropped, later)

    def __init__(self, dropped: Any, function: Callable[[], object]) -> None:
        super().__init__(dropped, later)  # type: ignore[call-arg]
        self._function = function
        _kept.add(self)

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __call__(self) -> None:
        _kept.discard(self)
        self._function()


_kept: set[_Dropped] = set()


def when_dropped(dropped: object, function: Callable[[], object]) -> None:
    """Call `function()` on an engine thread once an object is garbage. The function must not refer to it."""
    _Dropped(dropped, function)


class Wakeup:
    """A call that another thread or loop is asked to make; `taken` is False until it begins.

    To request a call, send a new `Wakeup` off first and only then store it where other threads read `taken`. An
    exception between the two steps then causes one call too many, never a missing one.
    """

    __slots__ = ("_call", "taken")

    def __init__(self, call: Callable[[], None] | None = None) -> None:
        self._call = call
        self.taken = call is None

    def __call__(self) -> None:
        self.taken = True
        if self._call is not None:
            self._call()
