"""Quantities as text: format times, bytes, counts, shares and shapes, and parse those that users type."""

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
    """Format seconds with three digits: ``7.31 µs``, ``420 ms``, ``1.45 s``."""
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
    """Format a number of bytes in binary units; ``?`` if negative."""
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
    """Format a number with its noun: ``1 request``, ``1,000 requests``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(words: Iterable[str], most: int) -> str:
    """Join words, the first `most` of a long list: ``a, b and 3 more``."""
    words = list(words)
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def quantity(words: str) -> tuple[float, str] | None:
    """Parse a number with a unit: ``2 MB`` is (2,000,000, ``bytes``), ``5 ms`` is (5,000,000, ``ns``).

    A number alone has the unit "". The result is None for other text.
    """
    match = _NUMBER.fullmatch(words.strip())
    unit = match[2].lower() if match else ""
    if match is None or unit not in _UNITS:
        return None
    base = "" if unit in ("", "%") else "bytes" if unit.endswith("b") else "ns"
    return float(match[1]) * _UNITS[unit], base


def seconds_in(words: str) -> float | None:
    """Parse a time, by default in seconds: ``5ms``, ``60s``, ``2``; None for other text."""
    parsed = quantity(words)
    if parsed is None or words.strip().endswith("%") or parsed[1] not in ("", "ns"):
        return None
    return parsed[0] / 1e9 if parsed[1] else parsed[0]


def bytes_in(value: object) -> int | None:
    """Return a number of bytes from a whole number or text: ``2 MB``, ``64 KiB``, ``1024``; None for others."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    parsed = quantity(value) if isinstance(value, str) and not value.strip().endswith("%") else None
    return int(parsed[0]) if parsed is not None and parsed[1] in ("bytes", "") else None


TIME_WIDTH = 7  # characters of the longest time below 10,000 s: columns of times have a constant width


def shape(dims: Iterable[int], *, batch: bool = False) -> str:
    """Format a shape as in Triton's configurations; the batch dimension is ``batch``."""
    return f"[{', '.join((['batch'] if batch else []) + [str(n) for n in dims])}]"


def ns(value: float) -> str:
    """Format nanoseconds as a time."""
    return duration(value / 1e9)


def some_ns(value: float) -> str:
    """Format nanoseconds as a time; 0 as an empty text."""
    return duration(value / 1e9) if value > 0 else ""


def percent(part: float, whole: float) -> str:
    """Format a part of a whole: ``45%``, ``<1%``; ``0%`` if the whole is 0."""
    share = part / whole if whole else 0.0
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"
