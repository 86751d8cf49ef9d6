"""Stacks of other threads, and variables in them.

Other threads keep running while their stacks are read. CPython 3.11 makes a frame object on demand and may collect
garbage in between. A destructor can then let the other thread run and leave that frame: the reader gets freed memory.
Guarantee: no automatic garbage collection happens while this module reads a stack or a variable in it.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Iterator, Mapping
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
