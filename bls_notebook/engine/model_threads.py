"""Threads that models start: Python does not wait for them when it ends, their models end them in `finalize`.

A model may start a thread in `initialize` that its `finalize` ends. Python joins threads that are no daemons
before it runs anything of ours, and would wait for ever. So what a model starts is a daemon here, and `left`
says which of them still run once their models are finalized.
"""

from __future__ import annotations

import sys
import threading
from weakref import WeakSet

_of_models: WeakSet[threading.Thread] = WeakSet()


def to_be_started(thread: threading.Thread) -> None:
    """Take note of a thread that a model is about to start."""
    to_come = getattr(thread, "_initialized", False) and thread.ident is None  # else it cannot be started
    if to_come and not thread.daemon:
        thread.daemon = True
        _of_models.add(thread)


def left() -> list[threading.Thread]:
    """Return the threads that models started, that were no daemons, and that run."""
    return [t for t in list(_of_models) if t.is_alive()]


def let_go_of_pools() -> None:
    """Have `concurrent.futures` not wait for the workers of models' pools when Python ends."""
    pools = sys.modules.get("concurrent.futures.thread")
    workers = getattr(pools, "_threads_queues", {})
    for thread in left():
        workers.pop(thread, None)
