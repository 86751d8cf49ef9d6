"""Walking up the stacks of other threads.

They run on meanwhile, and what CPython 3.11 then says is a frame's caller is, once in millions, no frame
at all. So this is for what has no other way to be known, and is asked last.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType

__all__ = ["NoFrameError", "walk_back"]


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
