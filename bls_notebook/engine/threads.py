"""Worker threads that are kept for reuse.

Guarantees: `start` never waits; a job runs in the thread that it is given alone; a thread that has
been idle for a while ends; threads are daemons, so they never keep the kernel from ending. A job that
raises is reported to `threading.excepthook` and costs nobody else anything.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from bls_notebook.devices import pool_hooks

__all__ = ["forget", "start_in_thread"]

IDLE_SECONDS = 10.0

_lock = threading.Lock()
_idle: deque[_Worker] = deque()
_count = 0


class _Worker:
    def __init__(self, job: Callable[[], None]) -> None:
        global _count
        self._job: Callable[[], None] | None = job
        self._ready = threading.Lock()
        self._ready.acquire()
        _count += 1
        threading.Thread(target=self._run, name=f"bls-worker-{_count}", daemon=True).start()

    def give(self, job: Callable[[], None]) -> None:
        self._job = job
        self._ready.release()

    def _run(self) -> None:
        while True:
            job, self._job = self._job, None
            if job is not None:
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
                job = None  # what the job refers to is not kept while idle
            with _lock:
                _idle.append(self)
            if not self._ready.acquire(timeout=IDLE_SECONDS):
                with _lock:
                    try:
                        _idle.remove(self)
                    except ValueError:
                        pass  # a job is just being given: take it
                    else:
                        return
                self._ready.acquire()


def forget() -> None:
    """Begin anew, in a forked child."""
    _idle.clear()


def start_in_thread(job: Callable[[], None]) -> None:
    """Run `job()` in a worker thread, now."""
    with _lock:
        worker = _idle.pop() if _idle else None
    if worker is None:
        _Worker(job)
    else:
        worker.give(job)
