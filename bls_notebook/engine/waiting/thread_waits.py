"""Threads that wait for another thread: in `Thread.join`, or for the result of a call in a pool.

Told by their stacks, so this is for waits that last. Guarantees: only a wait without a time limit counts, and
only for a thread that sleeps in the middle of its work.
"""

from __future__ import annotations

import concurrent.futures
import sys
import threading
from collections.abc import Collection
from types import FrameType
from typing import Any

from .frames import NoFrameError, call_in, walk_back

__all__ = ["waits_for_threads"]

_JOIN = threading.Thread.join.__code__
_RESULTS = (concurrent.futures.Future.result.__code__, concurrent.futures.Future.exception.__code__)
_WAITING = ("threading", "concurrent.futures._base")


def waits_for_threads(asleep: Collection[int]) -> dict[int, int]:
    """Return, by thread, the one it waits for: one of those `asleep`, or one that waits for these in turn."""
    frames = sys._current_frames()
    calls = {id(call_in(frames.get(thread))): thread for thread in asleep}
    wanted: dict[int, Any] = {t: _waits_for(f) for t, f in frames.items() if t not in asleep}
    found: dict[int, int] = {}
    while True:
        calls.update({id(call_in(frames[thread])): thread for thread in found})
        calls.pop(id(None), None)
        new = {}
        for thread, wait in wanted.items():
            target = wait.ident if isinstance(wait, threading.Thread) else calls.get(id(wait))
            if target is not None and thread not in found and (target in asleep or target in found):
                new[thread] = target
        if not new:
            return found
        found.update(new)


def _waits_for(frame: FrameType | None) -> Any:
    """The thread, or the future of a call, that a thread waits for; None for neither."""
    try:
        for each in walk_back(frame):
            if each.f_code is _JOIN or each.f_code in _RESULTS:
                return each.f_locals["self"] if each.f_locals["timeout"] is None else None
            if each.f_globals.get("__name__") not in _WAITING:
                return None
    except NoFrameError:
        return None
    return None
