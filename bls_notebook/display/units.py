"""How quantities are spelled, once, so that text and HTML agree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

TIME_PATTERN = r"[ \t]*\b\d+(?:\.\d+)? (?:µs|ms|s)\b"
"""A regular expression for every time that a display shows, with the padding before it."""

TIME_WIDTH = 7  # of the longest time below 10,000 s, so that columns never move with the clock


def duration(seconds: float) -> str:
    """Spell a time with three digits: ``7.31 µs``, ``420 ms``, ``1.45 s``."""
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        value = seconds * factor
        if value < 999.5:
            return f"{_three(value)} {unit}"
    return f"{_three(seconds)} s"


def _three(value: float) -> str:
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def size(count: int) -> str:
    """Spell a number of bytes in binary units, exactly where that is short; ``?`` if negative."""
    if count < 0:
        return "?"
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1023.5 or unit == "TiB":
            break
        value /= 1024
    if value == int(value):
        return f"{int(value)} {unit}"
    return f"{value:.1f} {unit}" if value < 99.95 else f"{value:.0f} {unit}"


def shape(dims: Iterable[int], *, batch: bool = False) -> str:
    """Spell a shape as Triton's configs do; a batch dimension is shown by name."""
    return f"[{', '.join((['batch'] if batch else []) + [str(n) for n in dims])}]"


def count(number: int, noun: str) -> str:
    """Spell a number with its noun: ``1 request``, ``1,000 requests``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def median(values: Sequence[float]) -> float:
    """Return the middle value; NaN if there is none."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
