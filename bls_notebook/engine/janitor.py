"""Runs what destructors may not: anything that takes a lock.

A destructor can run at any point of any thread, also while that thread holds the very lock that it
would need. Guarantees: `later` takes no lock that Python code can hold (SimpleQueue.put is reentrant)
and never waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from .threads import start_in_thread

__all__ = ["forget", "later", "start"]

_queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
_started = False
_lock = threading.Lock()


def _run() -> None:
    while True:
        job = _queue.get()
        start_in_thread(job)  # a job that waits must not hold up the others
        del job


def start() -> None:
    """Start the janitor's thread, if it is not running."""
    global _started
    if _started:
        return
    with _lock:
        if not _started:
            _started = True
            threading.Thread(target=_run, name="bls-janitor", daemon=True).start()


def forget() -> None:
    """Begin anew, in a forked child."""
    global _queue, _started
    _queue, _started = SimpleQueue(), False


def later(job: Callable[[], None]) -> None:
    """Run `job()` soon, in another thread. `start` must have been called before."""
    _queue.put(job)
