"""Processors and Python's lock, shared by the work that goes on at the same time. Pure, with its own time.

Work of a model is a mixture: a part of its time it computes, a part of it computes with Python's lock held,
and the rest it waits. Computing gets slower where more wants the processors, or the lock, than there is; all
work is slowed down alike, and waiting never is.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

_STEPS = 25  # of a bisection: a part in thirty million


class Use(NamedTuple):
    """What work of a model uses, as parts of its time: together at most 1, the rest is waiting.

    ``cpu`` computes without Python's lock, on so many processors as ``width`` says; ``python`` holds it.
    """

    cpu: float = 0.0
    python: float = 0.0
    width: float = 1.0

    def rate(self, processors: float, lock: float) -> float:
        """Return how fast it goes where it gets these parts of what it wants."""
        waits = 1.0 - self.cpu - self.python
        return 1.0 / (waits + self.cpu / processors + self.python / min(processors, lock))


ENGINE = ("", 0)
"""Stands for a model: what hands requests over, in Python."""


@dataclass(frozen=True)
class Machine:
    """How many ``processors`` there are, and what the work of each model ``uses``.

    ``hop`` is how long handing over a request takes, ns.
    """

    processors: float
    uses: Mapping[Any, Use]
    hop: int = 0
    rates: dict[tuple[int, ...], list[float]] = field(default_factory=dict, repr=False, compare=False)

    def apart(self) -> Machine:
        """Return the same where each instance is a process of its own, with a lock of its own."""
        return Machine(
            self.processors,
            {
                key: Use(use.cpu + use.python, 0.0, use.width if use.cpu > use.python else 1.0)
                for key, use in self.uses.items()
            },
            self.hop,
        )


class _Class:
    """The work of one model that goes on now; ``done`` is how much of it a piece from the start has had."""

    __slots__ = ("done", "ends", "rate", "use")

    def __init__(self, use: Use) -> None:
        self.use = use
        self.done = 0.0
        self.rate = 1.0
        self.ends: list[tuple[float, int, Callable[[], None]]] = []


class Sharing:
    """What goes on now on a machine."""

    def __init__(self, machine: Machine) -> None:
        self._processors = max(1.0, machine.processors)
        uses = {ENGINE: Use(python=1.0), **machine.uses} if machine.hop else machine.uses
        self._classes = {key: _Class(use) for key, use in uses.items()}
        self._all = list(self._classes.values())
        self._rates = machine.rates  # of all that goes on on it, one after the other
        self._order = count()
        self._now = 0.0

    def knows(self, key: Hashable) -> bool:
        """Whether work of a model uses anything."""
        return key in self._classes

    def begin(self, now: float, key: Hashable, length: float, ended: Callable[[], None]) -> None:
        """Begin a piece of work that takes so long alone."""
        self._advance(now)
        found = self._classes[key]
        heapq.heappush(found.ends, (found.done + length, next(self._order), ended))
        self._share()

    def next(self) -> float | None:
        """Return when the first piece will be over as things are; None for none."""
        times = [self._now + (c.ends[0][0] - c.done) / c.rate for c in self._all if c.ends]
        return max(self._now, min(times)) if times else None

    def end(self) -> Callable[[], None]:
        """End the first piece; return what it calls."""
        first = min(
            (c for c in self._all if c.ends), key=lambda c: ((c.ends[0][0] - c.done) / c.rate, c.ends[0][1])
        )
        self._advance(self._now + max(0.0, first.ends[0][0] - first.done) / first.rate)
        ended = heapq.heappop(first.ends)[2]
        self._share()
        return ended

    def _advance(self, now: float) -> None:
        for each in self._all:
            each.done += (now - self._now) * each.rate
        self._now = now

    def _share(self) -> None:
        counts = tuple(len(c.ends) for c in self._all)
        rates = self._rates.get(counts)
        if rates is None:
            rates = self._rates[counts] = self._found(counts)
        for each, rate in zip(self._all, rates, strict=True):
            each.rate = rate

    def _found(self, counts: tuple[int, ...]) -> list[float]:
        busy = [(n, c.use) for n, c in zip(counts, self._all, strict=True) if n]

        def locked(lock: float) -> float:
            return sum(n * use.python * use.rate(1.0, lock) for n, use in busy)

        lock = _most(locked, 1.0)

        def computed(part: float) -> float:
            return sum(n * (use.cpu * use.width + use.python) * use.rate(part, lock) for n, use in busy)

        part = _most(computed, self._processors)
        return [c.use.rate(part, lock) for c in self._all]


def _most(used: Callable[[float], float], there: float) -> float:
    """Return the largest part, at most all, with which no more is used than is there."""
    if used(1.0) <= there * 1.0001:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if used(middle) <= there else (low, middle)
    return max(low, 1e-6)
