"""Profiles and memory tracks that are over, as long as somebody has them: where a request may be found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

profiles: WeakSet[Any] = WeakSet()
tracks: WeakSet[Any] = WeakSet()


def on_at(kept: Iterable[Any], ns: int) -> Any:
    """Return the one that was on at a moment, the last to begin; None where none was."""
    found = [each for each in list(kept) if each._start <= ns <= each._end]
    return max(found, key=lambda each: each._start, default=None)
