"""Arithmetic of intervals of time: pure, on pairs of nanoseconds that begin before they end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import NamedTuple

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the time that the intervals cover, in order and disjoint; empty ones vanish."""
    out: list[Interval] = []
    for begin, end in sorted(i for i in intervals if i[0] < i[1]):
        if out and begin <= out[-1][1]:
            if end > out[-1][1]:
                out[-1] = (out[-1][0], end)
        else:
            out.append((begin, end))
    return out


def minus(intervals: Iterable[Interval], holes: Iterable[Interval]) -> list[Interval]:
    """Return what is left of the intervals without the holes, in order and disjoint."""
    without = union(holes)
    begins, ends = [begin for begin, _ in without], [end for _, end in without]
    out: list[Interval] = []
    for begin, end in union(intervals):
        out += gaps(begin, end, without[bisect_right(ends, begin) : bisect_left(begins, end)])
    return out


def gaps(begin: int, end: int, holes: Iterable[Interval]) -> list[Interval]:
    """Return what is left of one interval without the holes, in order and disjoint."""
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
    """Return the sum of the lengths, ns."""
    return sum(end - begin for begin, end in intervals)


def events(intervals: Iterable[Interval]) -> list[int]:
    """Return two numbers for each interval, for `occupied`: 2 * begin + 1 and 2 * end; none for empty ones.

    Of hundreds of thousands of intervals, plain numbers are quicker to sort than tuples, and the garbage
    collector never looks at them.
    """
    out: list[int] = []
    for begin, end in intervals:
        if begin < end:
            out.append(2 * begin + 1)
            out.append(2 * end)
    return out


class Occupied(NamedTuple):
    """How long one interval at least lasted, and two at least; the sum of all; the most at a time."""

    once: int
    twice: int
    sum: int
    most: int


def occupied(events: list[int]) -> Occupied:
    """Return how much time intervals cover, from their `events`; sorts these."""
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
    """Return how many intervals cover each moment: (from when on, how many), in order.

    A moment belongs to the intervals that begin at it, not to those that end at it.
    """
    out: list[tuple[int, int]] = []
    level = told = now = 0
    for event in sorted(events(intervals)):
        when = event >> 1
        if when != now:
            if level != told:
                out.append((now, level))
                told = level
            now = when
        level += 1 if event & 1 else -1
    if level != told:
        out.append((now, level))
    return out


class Rows:
    """Gives each interval, in the order of their beginnings, the lowest row that is free."""

    def __init__(self) -> None:
        self.count = 0
        self._free: list[int] = []
        self._busy: list[tuple[float, int]] = []  # until when, which row

    def take(self, begin: float, end: float) -> int:
        """Return the row of an interval; one that is empty leaves it at once."""
        while self._busy and self._busy[0][0] <= begin:
            heappush(self._free, heappop(self._busy)[1])
        if self._free:
            row = heappop(self._free)
        else:
            row, self.count = self.count, self.count + 1
        heappush(self._busy, (max(end, begin), row))
        return row


def overlapping(intervals: list[Interval]) -> list[bool]:
    """Return for each interval whether it shares time with another one."""
    out = [False] * len(intervals)
    furthest, owner = -1, -1
    for index in sorted(range(len(intervals)), key=intervals.__getitem__):
        begin, end = intervals[index]
        if owner >= 0 and begin < furthest and begin < end:
            out[index] = out[owner] = True
        if end > furthest and begin < end:
            furthest, owner = end, index
    return out
