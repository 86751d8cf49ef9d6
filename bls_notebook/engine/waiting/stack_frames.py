"""Stacks of other threads: find the executor call that a thread runs, and the thread that it waits for.

Other threads keep running while their stacks are read. CPython 3.11 makes a frame object on demand and may collect
garbage in between. A destructor can then let the other thread run and leave that frame: the reader gets freed memory.
Guarantee: no automatic garbage collection happens while this module reads a stack or a variable in it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import sys
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures.thread import _WorkItem
from types import FrameType
from typing import Any

_lock = threading.RLock()  # reentrant, because a destructor may read stacks while this thread reads one


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Suspend automatic garbage collection."""
    with _lock:
        enabled = gc.isenabled()
        try:
            gc.disable()
            yield
        finally:
            if enabled:
                gc.enable()


def walk_back(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and its callers. For a frame of another thread, use this only under `no_collection`."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def stacks() -> dict[int, list[FrameType]]:
    """Return the frames of every thread, innermost first."""
    with no_collection():
        return {thread: list(walk_back(frame)) for thread, frame in sys._current_frames().items()}


def stack_of(thread: int) -> list[FrameType]:
    with no_collection():
        return list(walk_back(sys._current_frames().get(thread)))


def variables_of(frame: FrameType) -> Mapping[str, Any]:
    """Return the variables of a function that may be running in another thread."""
    with no_collection():
        return frame.f_locals


def frame_of(coroutine: Any) -> FrameType | None:
    """Return the frame of a coroutine that may be running in another thread."""
    with no_collection():
        frame: FrameType | None = getattr(coroutine, "cr_frame", None)
        return frame


_RUNS_A_CALL = _WorkItem.run.__code__
_JOIN = threading.Thread.join.__code__
_RESULTS = (concurrent.futures.Future.result.__code__, concurrent.futures.Future.exception.__code__)
_WAITING = ("threading", "concurrent.futures._base")


def call_in(stack: Iterable[FrameType]) -> Any:
    """Return the future of the executor call that a thread with this stack runs, or None."""
    work_items = (variables_of(frame)["self"] for frame in stack if frame.f_code is _RUNS_A_CALL)
    return getattr(next(work_items, None), "future", None)


def waits_for_threads(asleep: Collection[int]) -> dict[int, int]:
    """Map each thread whose chain of waits ends at a thread in `asleep` to the thread that it waits for.

    A thread waits in `Thread.join` or for the result of an executor call; waits with a timeout do not count. In the
    mapping, each thread comes after the one that it waits for.
    """
    frames = stacks()
    calls = {id(call_in(frames.get(thread, ()))): thread for thread in asleep}
    waits: dict[int, Any] = {t: _waits_for(f) for t, f in frames.items() if t not in asleep}
    targets: dict[int, int] = {}
    while True:
        calls.update({id(call_in(frames[thread])): thread for thread in targets})
        calls.pop(id(None), None)
        new = {}
        for thread, wait in waits.items():
            target = wait.ident if isinstance(wait, threading.Thread) else calls.get(id(wait))
            if target is not None and thread not in targets and (target in asleep or target in targets):
                new[thread] = target
        if not new:
            return targets
        targets.update(new)


def _waits_for(stack: Iterable[FrameType]) -> Any:
    """Return the thread, or the future of an executor call, that a thread with this stack waits for, or None."""
    for frame in stack:
        if frame.f_code is _JOIN or frame.f_code in _RESULTS:
            variables = variables_of(frame)
            return variables["self"] if variables["timeout"] is None else None
        if frame.f_globals.get("__name__") not in _WAITING:
            return None
    return None
