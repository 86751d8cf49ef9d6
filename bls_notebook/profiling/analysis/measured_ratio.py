"""Ratios of two alternating measurements, and their error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, stdev

Turns = Sequence[tuple[float, float]]


def ratio(turns: Turns) -> float:
    """Return the ratio first / second: the geometric mean over the middle half of the turns.

    Turns with a measurement that is not positive do not count; 0 if none is left.
    """
    logs = _logs(turns)
    if not logs:
        return 0.0
    outer = len(logs) // 4
    return math.exp(mean(logs[outer : len(logs) - outer]))


def relative_error(turns: Turns) -> float:
    """Return the relative standard error of `ratio`; infinite for fewer than three turns.

    This is the error of the mean over all turns, which outliers increase: an estimate on the safe side.
    """
    logs = _logs(turns)
    return stdev(logs) / math.sqrt(len(logs)) if len(logs) > 2 else math.inf


def _logs(turns: Turns) -> list[float]:
    return sorted(math.log(a / b) for a, b in turns if a > 0 and b > 0)
