"""Arithmetic of intervals of time: pure, on pairs of nanoseconds that begin before they end."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Interval", "levels", "minus", "overlapping", "total", "union"]

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
    out: list[Interval] = []
    without = union(holes)
    at = 0
    for begin, end in union(intervals):
        while at and without[at - 1][1] > begin:
            at -= 1
        while at < len(without) and without[at][1] <= begin:
            at += 1
        here = at
        while here < len(without) and without[here][0] < end:
            if without[here][0] > begin:
                out.append((begin, without[here][0]))
            begin = without[here][1]
            here += 1
        if begin < end:
            out.append((begin, end))
    return out


def total(intervals: Iterable[Interval]) -> int:
    """Return the sum of the lengths, ns."""
    return sum(end - begin for begin, end in intervals)


def levels(intervals: Iterable[Interval]) -> list[tuple[int, int]]:
    """Return how many intervals cover each moment: (from when on, how many), in order.

    A moment belongs to the intervals that begin at it, not to those that end at it.
    """
    change: dict[int, int] = {}
    for begin, end in intervals:
        if begin < end:
            change[begin] = change.get(begin, 0) + 1
            change[end] = change.get(end, 0) - 1
    out: list[tuple[int, int]] = []
    level = 0
    for when in sorted(change):
        if change[when]:
            level += change[when]
            out.append((when, level))
    return out


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
