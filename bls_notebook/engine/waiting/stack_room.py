"""Room on the stack, asked for before something is taken that has to be given back.

A recursive function of a user may call into the engine with a frame or two left. What the engine does between
taking a thing and giving it back must not meet the end of the stack then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import reduce

LEVELS = 48  # calls that the engine makes inside each other, at most, and some more
_frame, _limit = sys._getframe, sys.getrecursionlimit


def _nested(inner: Callable[[], None], _: int) -> Callable[[], None]:
    return lambda: inner()


_try: Callable[[], None] = reduce(_nested, range(LEVELS), lambda: None)


def need_room() -> None:
    """Raise RecursionError now if there is no room for the engine's own calls."""
    try:
        _frame(_limit() // 3 - LEVELS)  # what C functions call counts as well, and has no frame
    except ValueError:
        return  # plenty: so it is nearly always
    _try()
