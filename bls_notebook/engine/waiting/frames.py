"""Walking up the stacks of other threads.

They run on meanwhile, and what CPython 3.11 then says is a frame's caller is, once in millions, no frame
at all. So this is for what has no other way to be known, and is asked last.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures.thread import _WorkItem
from types import FrameType
from typing import Any

__all__ = ["NoFrameError", "call_in", "walk_back"]

_RUNS_A_CALL = _WorkItem.run.__code__


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
