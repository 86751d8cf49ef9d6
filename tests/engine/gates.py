"""What a test and its models share: named events, and a list of what happened.

Models import this module; the engine gives installed and shared modules to every model alike.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from typing import Any

from tests.waiting import LIMIT

_events: dict[str, threading.Event] = {}
_lock = threading.Lock()
log: queue.SimpleQueue[Any] = queue.SimpleQueue()
shared: dict[str, Any] = {}
counts: dict[str, int] = defaultdict(int)
over = [False]  # the test is: endless loops end, so that a failed test burns no time of the next


def gate(name: str) -> threading.Event:
    with _lock:
        return _events.setdefault(name, threading.Event())


def open_gate(name: str) -> None:
    gate(name).set()


def pass_gate(name: str, limit: float = LIMIT) -> None:
    """Wait until somebody opens it; an error (and no hang) where nobody does."""
    if not gate(name).wait(limit):
        raise TimeoutError(f"gate {name!r} was never opened")


def count(name: str) -> None:
    with _lock:
        counts[name] += 1


def logged() -> list[Any]:
    out = []
    while not log.empty():
        out.append(log.get())
    return out


def reset() -> None:
    over[0] = False
    with _lock:
        _events.clear()
        counts.clear()
        shared.clear()
    logged()


def open_all() -> None:
    """Let go of every model that still waits, so that a failed test leaves nothing behind."""
    over[0] = True
    with _lock:
        for event in _events.values():
            event.set()
