"""`Latency`: how long many requests of one kind took: percentiles and a histogram."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, log

from .plain import Record
from .quartiles import percentile

_BINS = 40
_WIDE = (
    4.0  # times as slow as the quickest, from where on each bin is so many times as wide as the one before
)


@dataclass(frozen=True, slots=True, repr=False)
class Latency(Record):
    """Percentiles of ``count`` times in seconds, and how many fell between each two of the ``edges``.

    The last bin has its upper edge. Bins are of equal width, or where ``log``, of an equal factor.
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
    """Return the latency of requests that took so many seconds; None of none."""
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
