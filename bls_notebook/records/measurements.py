"""Statistics of measurements: quartiles, latency histograms, groups by key."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import TypeVar

from .base import Record


@dataclass(frozen=True, slots=True, repr=False)
class Quartiles(Record):
    """Quartiles of `count` measurements, and their sum; all 0 without measurements. Times are in ns."""

    count: int = 0
    median: float = 0.0
    q1: float = 0.0
    q3: float = 0.0
    least: float = 0.0
    most: float = 0.0
    total: float = 0.0


NONE = Quartiles()


def quartiles(values: Iterable[float]) -> Quartiles:
    """Return the quartiles of values, linearly interpolated."""
    ordered = sorted(map(float, values))
    if not ordered:
        return NONE
    median, q1, q3 = (percentile(ordered, part) for part in (0.5, 0.25, 0.75))
    return Quartiles(len(ordered), median, q1, q3, ordered[0], ordered[-1], sum(ordered))


def percentile(ordered: Sequence[float], part: float) -> float:
    """Return a percentile of ascending values, linearly interpolated; `part` is 0.5 for the median."""
    place = part * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


_BINS = 40
_WIDE = 4.0  # ratio of the slowest to the fastest time above which the bins are logarithmic


@dataclass(frozen=True, slots=True, repr=False)
class Latency(Record):
    """Percentiles of `count` times in seconds, and their histogram: `counts` between each two `edges`.

    The last bin includes its upper edge. Bins have equal widths, or equal factors if `log`.
    """

    count: int
    median: float
    p90: float
    p99: float
    least: float
    most: float
    edges: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    log: bool = False


def latency(seconds: Iterable[float], bins: int = _BINS) -> Latency | None:
    """Return percentiles and a histogram of durations in seconds; None without durations."""
    times = sorted(map(float, seconds))
    if not times:
        return None
    least, most = times[0], times[-1]
    wide = least >= 1e-9 and most / least > _WIDE
    if wide:
        low, step = log(least), log(most / least) / bins
        edges = [exp(low + step * i) for i in range(bins + 1)]
    else:
        edges = [least + (most - least) * i / bins for i in range(bins + 1)]
    edges[0], edges[-1] = least, most
    counts = [0] * bins
    for time in times:
        counts[min(max(bisect_right(edges, time) - 1, 0), bins - 1)] += 1
    median, p90, p99 = (percentile(times, part) for part in (0.5, 0.9, 0.99))
    return Latency(len(times), median, p90, p99, least, most, tuple(edges), tuple(counts), wide)


GroupKey = TypeVar("GroupKey")
Value = TypeVar("Value")


def grouped(pairs: Iterable[tuple[GroupKey, Value]]) -> dict[GroupKey, list[Value]]:
    """Return the values of each key, in the order of the pairs."""
    groups: dict[GroupKey, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
