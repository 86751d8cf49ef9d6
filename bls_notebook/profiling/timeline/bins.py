"""How much of each of many equal stretches of time some intervals cover."""

from __future__ import annotations

from itertools import accumulate


class Bins:
    """So many equal stretches of a `wall` time (ns), and how much of each is covered; what overlaps adds
    up.
    """

    def __init__(self, count: int, wall: int) -> None:
        self._scale = count / max(wall, 1)
        self._count = count
        self._parts = [0.0] * (count + 1)
        self._whole = [0] * (count + 2)  # changes, to be summed up

    def add(self, begin: float, end: float) -> None:
        """Cover an interval."""
        first, last = max(0, begin * self._scale), min(end * self._scale, self._count)
        if last <= first:
            return
        i, j = int(first), int(last)
        if i == j:
            self._parts[i] += last - first
            return
        self._parts[i] += i + 1 - first
        self._parts[j] += last - j
        self._whole[i + 1] += 1
        self._whole[j] -= 1

    @property
    def covered(self) -> list[float]:
        """The part of each stretch that is covered: 1 for all of it, 2 for twice all of it."""
        whole = accumulate(self._whole)
        return [part + full for part, full in zip(self._parts[: self._count], whole, strict=False)]
