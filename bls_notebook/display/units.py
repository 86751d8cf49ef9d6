"""How quantities are spelled, once, so that text and HTML agree."""

from __future__ import annotations

from collections.abc import Iterable

from bls_notebook.records.quantities import count, duration, size

__all__ = [
    "TIME_WIDTH", "count", "duration", "factor", "ns", "percent", "shape", "size", "some_ns",
]  # fmt: skip

TIME_WIDTH = 7  # of the longest time below 10,000 s, so that columns never move with the clock


def shape(dims: Iterable[int], *, batch: bool = False) -> str:
    """Spell a shape as Triton's configs do; a batch dimension is shown by name."""
    return f"[{', '.join((['batch'] if batch else []) + [str(n) for n in dims])}]"


def ns(value: float) -> str:
    """Spell nanoseconds as a time."""
    return duration(value / 1e9)


def some_ns(value: float) -> str:
    """Spell nanoseconds as a time, and none as nothing."""
    return duration(value / 1e9) if value > 0 else ""


def percent(part: float, whole: float) -> str:
    """Spell a part of a whole: ``45%``, ``<1%``; nothing of nothing is ``0%``."""
    share = part / whole if whole else 0.0
    if 0 < share < 0.005:
        return "<1%"
    return f"{share:.0%}"


def factor(value: float) -> str:
    """Spell how many times as fast something became: ``3.9× faster``, ``1.2× slower``."""
    if value <= 0:
        return ""
    return f"{_times(value)} faster" if value >= 1 else f"{_times(1 / value)} slower"


def _times(value: float) -> str:
    return f"{value:.2f}×" if value < 9.995 else f"{value:.0f}×"
