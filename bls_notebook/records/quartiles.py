"""`Quartiles`: many measurements of one thing, as quartiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .plain import Record


@dataclass(frozen=True, slots=True, repr=False)
class Quartiles(Record):
    """Quartiles of ``count`` measurements, and their sum; all 0 where there are none. Times are ns."""

    count: int = 0
    median: float = 0.0
    q1: float = 0.0
    q3: float = 0.0
    least: float = 0.0
    most: float = 0.0
    total: float = 0.0

    @property
    def iqr(self) -> float:
        """The middle half: third less first quartile."""
        return self.q3 - self.q1


NONE = Quartiles()


def quartiles(values: Iterable[float]) -> Quartiles:
    """Return the quartiles of values; between two of them by linear interpolation."""
    ordered = sorted(map(float, values))
    if not ordered:
        return NONE
    median, q1, q3 = (percentile(ordered, part) for part in (0.5, 0.25, 0.75))
    return Quartiles(len(ordered), median, q1, q3, ordered[0], ordered[-1], sum(ordered))


def percentile(ordered: Sequence[float], part: float) -> float:
    """Return what such a part of ascending values is not above; between two of them interpolated."""
    place = part * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
