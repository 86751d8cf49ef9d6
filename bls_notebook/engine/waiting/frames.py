"""Walking up the stacks of other threads: what they run, and which other thread they wait for.

They run on meanwhile, and what CPython 3.11 then says is a frame's caller is, once in millions, no frame
at all. So this is for what has no other way to be known, and is asked last.
"""

from __future__ import annotations

import concurrent.futures
import sys
import threading
from collections.abc import Collection, Iterator
from concurrent.futures.thread import _WorkItem
from types import FrameType
from typing import Any

__all__ = ["NoFrameError", "call_in", "waits_for_threads", "walk_back"]

_RUNS_A_CALL = _WorkItem.run.__code__
_JOIN = threading.Thread.join.__code__
_RESULTS = (concurrent.futures.Future.result.__code__, concurrent.futures.Future.exception.__code__)
_WAITING = ("threading", "concurrent.futures._base")


class NoFrameError(Exception):
    """What should have been a frame is none: the stack cannot be known."""


def walk_back(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and its callers.

    Raises
    ------
    NoFrameError
    """
    while frame is not None:
        if not isinstance(frame, FrameType):
            raise NoFrameError
        yield frame
        frame = frame.f_back


def call_in(frame: FrameType | None) -> Any:
    """Return the future of the pool's call that a thread is in; None for none, or if it cannot be known."""
    try:
        found = (each.f_locals["self"] for each in walk_back(frame) if each.f_code is _RUNS_A_CALL)
        return getattr(next(found, None), "future", None)
    except NoFrameError:
        return None


def waits_for_threads(asleep: Collection[int]) -> dict[int, int]:
    """Return, by thread, the one it waits for: one of those `asleep`, or one that waits for these in turn.

    Only a wait without a time limit counts, in `Thread.join` or for the result of a call in a pool, and only
    for a thread that sleeps in the middle of its work.
    """
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
