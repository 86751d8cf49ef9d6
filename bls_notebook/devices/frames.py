"""The variables of functions that run now, and what waits in coroutines, as places where memory may be held.

Guarantees: no variable is kept alive by having been looked at. (A frame that is asked for its variables by
name keeps them in a dict of its own, on Python before 3.13; it is emptied at once.)
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType
from typing import Any

from .holders import ATOMS, Root

__all__ = ["frame_roots"]


def frame_roots(skip: Callable[[FrameType], bool], home: str) -> Iterator[Root]:
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
            if at.f_code.co_name != "<module>" and not skip(at):
                yield from _of_frame(at, home)
            at = at.f_back


def _of_frame(frame: FrameType, home: str) -> Iterator[Root]:
    plain = (*ATOMS, FunctionType)
    globals_, builtins = frame.f_globals, frame.f_builtins
    values = [
        value
        for value in gc.get_referents(frame)
        if not isinstance(value, plain) and value is not globals_ and value is not builtins
    ]
    if not values:
        return
    if str(globals_.get("__name__", "")).startswith(home):
        yield from (Root("frame", "", value) for value in values)
        return
    names = _names(frame)
    where = f"{frame.f_code.co_name}()"
    for value in values:
        name = names.get(id(value))
        yield Root("frame", f"{name} in {where}" if name else where, value)


def _names(frame: FrameType) -> dict[int, str]:
    if sys.gettrace() is not None:
        return {}  # a debugger writes what it finds in the dict back into the variables
    found: Any = frame.f_locals
    names = {id(value): name for name, value in found.items()}
    if type(found) is dict and found is not frame.f_globals:
        found.clear()
    return names
