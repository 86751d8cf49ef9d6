"""Quantities as text: times, bytes, counts, shares and shapes, as displays and messages write them and as
users type them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_UNITS = {
    "": 1, "%": 0.01, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
    "ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9,
}  # fmt: skip
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zµ%]*)", re.IGNORECASE)


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


def count(number: int, noun: str) -> str:
    """Spell a number with its noun: ``1 request``, ``1,000 requests``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(words: Iterable[str], most: int) -> str:
    """Spell a list, of a long one its first words: ``a, b and 3 more``."""
    words = list(words)
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def quantity(words: str) -> tuple[float, str] | None:
    """Read a number and its unit: ``2 MB`` is 2,000,000 and ``bytes``, ``5 ms`` 5,000,000 and ``ns``.

    A number alone has the unit "". None for other words.
    """
    found = _NUMBER.fullmatch(words.strip())
    unit = found[2].lower() if found else ""
    if found is None or unit not in _UNITS:
        return None
    of = "" if unit in ("", "%") else "bytes" if unit.endswith("b") else "ns"
    return float(found[1]) * _UNITS[unit], of


def seconds_in(words: str) -> float | None:
    """Read a time, in seconds where no unit is given: ``5ms``, ``60s``, ``2``; None for other words."""
    found = quantity(words)
    if found is None or words.strip().endswith("%") or found[1] not in ("", "ns"):
        return None
    return found[0] / 1e9 if found[1] else found[0]


def bytes_in(given: object) -> int | None:
    """Read a number of bytes, or a text of one: ``2 MB``, ``64 KiB``, ``1024``; None for what is neither."""
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    found = quantity(given) if isinstance(given, str) and not given.strip().endswith("%") else None
    return int(found[0]) if found is not None and found[1] in ("bytes", "") else None


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
