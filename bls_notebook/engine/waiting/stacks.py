"""The stacks of other threads, which run on while they are read.

CPython 3.11 makes the object of a frame when it is asked for, and may collect garbage in the middle of
that. A destructor then lets the other thread run, which leaves the very frame: what is read next is no frame
any more, or nothing at all.
Guarantees: garbage is not collected by itself while a stack, or a variable in it, is read.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

_lock = threading.RLock()  # a destructor may come here while a stack is read


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Keep the collector of garbage from beginning by itself."""
    with _lock:
        enabled = gc.isenabled()
        try:
            gc.disable()
            yield
        finally:
            if enabled:
                gc.enable()


def walk_back(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and its callers; of another thread under `no_collection`."""
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
    """Return the frame of a coroutine, which may be running in another thread."""
    with no_collection():
        frame: FrameType | None = getattr(coroutine, "cr_frame", None)
        return frame
