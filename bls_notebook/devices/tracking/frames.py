"""The variables of functions that run now, as places where memory may be held.

Guarantees: no variable is kept alive by having been looked at, and none is changed. Before Python 3.13 a
frame that is asked for its variables keeps them in a dict of its own, which is emptied at once unless
somebody else has it; a frame that is being debugged is not asked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from inspect import CO_OPTIMIZED
from types import FrameType, FunctionType
from typing import Any

from .holders import ATOMS, SearchRoot

__all__ = ["frame_roots"]

_NO_ROOT = (*ATOMS, FunctionType)


def frame_roots(skip: Callable[[FrameType], bool], home: str) -> Iterator[SearchRoot]:
    """Yield the variables of every function that runs now, in any thread.

    Parameters
    ----------
    skip : callable
        Whether to leave a frame out.
    home : str
        Modules whose frames have no name worth telling begin with this.
    """
    for frame in list(sys._current_frames().values()):
        at: FrameType | None = frame
        while at is not None:
            # Of a module or a class the variables are its namespace itself, which others lead to.
            if at.f_code.co_flags & CO_OPTIMIZED and at.f_trace is None and not skip(at):
                ours = str(at.f_globals.get("__name__", "")).startswith(home)
                for name, value in _variables(at):
                    if not isinstance(value, _NO_ROOT):
                        yield SearchRoot("frame", "" if ours else f"{name} in {at.f_code.co_name}()", value)
            at = at.f_back


def _variables(frame: FrameType) -> list[tuple[str, Any]]:
    found: Any = frame.f_locals
    variables = list(found.items())
    if type(found) is dict and sys.getrefcount(found) == _OWN:
        found.clear()
    return variables


def _count_own() -> int:
    """How many references `_variables` sees to the dict of a frame that nobody else has."""
    found: Any = sys._getframe().f_locals
    return sys.getrefcount(found) if type(found) is dict else 0


_OWN = _count_own()
