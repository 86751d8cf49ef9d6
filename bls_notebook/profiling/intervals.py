"""Arithmetic of time intervals: pure functions on pairs (begin, end) in nanoseconds."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import NamedTuple

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union of intervals: disjoint, in order, without empty intervals."""
    out: list[Interval] = []
    for begin, end in sorted(i for i in intervals if i[0] < i[1]):
        if out and begin <= out[-1][1]:
            if end > out[-1][1]:
                out[-1] = (out[-1][0], end)
        else:
            out.append((begin, end))
    return out


def minus(intervals: Iterable[Interval], holes: Iterable[Interval]) -> list[Interval]:
    """Return the intervals minus the holes, disjoint and in order."""
    without = Cover(holes)
    return [part for begin, end in union(intervals) for part in gaps(begin, end, without.within(begin, end))]


class Cover:
    """The union of intervals, which finds its parts within another interval in logarithmic time."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        self._pieces = union(intervals)
        self._begins, self._ends = [begin for begin, _ in self._pieces], [end for _, end in self._pieces]

    def count(self, begin: int, end: int) -> int:
        """Return the number of disjoint parts within an interval."""
        return max(0, bisect_left(self._begins, end) - bisect_right(self._ends, begin))

    def within(self, begin: int, end: int) -> list[Interval]:
        """Return the parts within an interval, disjoint and in order."""
        parts = self._pieces[bisect_right(self._ends, begin) : bisect_left(self._begins, end)]
        return [(max(begin, piece), min(end, until)) for piece, until in parts]

    def joined(self, number: int) -> Cover:
        """Return a coarser cover: each `number` adjacent parts are one, with the gaps between them."""
        ends = [*self._ends[number - 1 :: number], *self._ends[-1:]]
        return Cover(zip(self._begins[::number], ends, strict=False))


def gaps(begin: int, end: int, holes: Iterable[Interval]) -> list[Interval]:
    """Return one interval minus the holes, disjoint and in order."""
    out: list[Interval] = []
    for hole, last in sorted(holes):
        if hole >= end:
            break
        if last > begin and last > hole:
            if hole > begin:
                out.append((begin, hole))
            begin = last
    if begin < end:
        out.append((begin, end))
    return out


def total(intervals: Iterable[Interval]) -> int:
    """Return the sum of the lengths (ns)."""
    return sum(end - begin for begin, end in intervals)


def total_within(intervals: Iterable[Interval], others: Iterable[Interval]) -> int:
    """Return the length (ns) of the union of intervals within the union of others."""
    pieces = union(intervals)
    cover = Cover(others if pieces else ())  # others may be many
    return sum(total(cover.within(begin, end)) for begin, end in pieces)


def events(intervals: Iterable[Interval]) -> list[int]:
    """Return two numbers for each non-empty interval, as `occupied` needs them: 2 * begin + 1 and 2 * end.

    Plain numbers, because with hundreds of thousands of intervals they sort faster than tuples and cost the garbage
    collector nothing.
    """
    out: list[int] = []
    for begin, end in intervals:
        if begin < end:
            out.append(2 * begin + 1)
            out.append(2 * end)
    return out


class Occupied(NamedTuple):
    """Time covered by at least one interval, and by at least two; the sum of all; the largest number at once."""

    once: int
    twice: int
    sum: int
    most: int


def occupied(events: list[int]) -> Occupied:
    """Return the time that intervals cover, computed from their `events`; sorts these in place."""
    events.sort()
    once = twice = total = level = most = first = second = 0
    for event in events:
        if event & 1:
            level += 1
            if level == 1:
                first = event
            elif level == 2:
                second = event
            if level > most:
                most = level
            total -= event - 1
        else:
            level -= 1
            if level == 0:
                once += event - first + 1
            elif level == 1:
                twice += event - second + 1
            total += event
    return Occupied(once >> 1, twice >> 1, total >> 1, most)


def levels(intervals: Iterable[Interval]) -> list[tuple[int, int]]:
    """Return the number of intervals at each moment, as (start, number) in order.

    A moment belongs to intervals that begin at it, but not to intervals that end at it.
    """
    out: list[tuple[int, int]] = []
    level = last = now = 0
    for event in sorted(events(intervals)):
        when = event >> 1
        if when != now:
            if level != last:
                out.append((now, level))
                last = level
            now = when
        level += 1 if event & 1 else -1
    if level != last:
        out.append((now, level))
    return out


class Rows:
    """Assigns each interval, in the order of their starts, to the lowest free row."""

    def __init__(self) -> None:
        self.count = 0
        self._free: list[int] = []
        self._busy: list[tuple[float, int]] = []  # (end, row)

    def take(self, begin: float, end: float) -> int:
        """Return the row of an interval; an empty interval frees its row at once."""
        while self._busy and self._busy[0][0] <= begin:
            heappush(self._free, heappop(self._busy)[1])
        if self._free:
            row = heappop(self._free)
        else:
            row, self.count = self.count, self.count + 1
        heappush(self._busy, (max(end, begin), row))
        return row
