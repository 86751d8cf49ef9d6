"""How the quantities of a session are spelled."""

from __future__ import annotations

from bls_notebook.display.units import duration

__all__ = ["factor", "ns", "percent", "some_ns"]


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
