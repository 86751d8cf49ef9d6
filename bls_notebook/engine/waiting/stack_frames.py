"""The stacks of other threads: which pool job a thread runs, which thread it waits for.

The threads run on while their stacks are read. CPython 3.11 makes a frame object on demand and may collect
garbage in between; a destructor then lets the other thread leave that very frame, and what is read next is
no frame any more. Guarantee: no automatic garbage collection while a stack, or a variable in it, is read.
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

_lock = threading.RLock()  # a destructor may come here while a stack is read


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
    """Yield a frame and its callers; of another thread, only under `no_collection`."""
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
    """Return the future of the executor call that a thread runs, by its frames, or None."""
    found = (variables_of(each)["self"] for each in stack if each.f_code is _RUNS_A_CALL)
    return getattr(next(found, None), "future", None)


def waits_for_threads(asleep: Collection[int]) -> dict[int, int]:
    """Return, by thread, the one it waits for: one of those `asleep`, or one that waits for these in turn.

    Only a wait without a time limit counts, in `Thread.join` or for the result of a call in a pool, and only
    for a thread that sleeps in the middle of its work.
    """
    frames = stacks()
    calls = {id(call_in(frames.get(thread, ()))): thread for thread in asleep}
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


def _waits_for(stack: Iterable[FrameType]) -> Any:
    """The thread, or the future of a call, that a thread waits for, or None."""
    for each in stack:
        if each.f_code is _JOIN or each.f_code in _RESULTS:
            variables = variables_of(each)
            return variables["self"] if variables["timeout"] is None else None
        if each.f_globals.get("__name__") not in _WAITING:
            return None
    return None
