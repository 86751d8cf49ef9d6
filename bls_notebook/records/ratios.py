"""Ratios of two things that were measured in turns, many times: what they are, and how sure that is.

A machine is faster at one moment than at another, and both things of a turn are measured at nearly the same:
so the ratios of the turns differ less than the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, stdev

Turns = Sequence[tuple[float, float]]


def ratio(turns: Turns) -> float:
    """Return how many times the second the first is: the (geometric) mean of the middle half of the turns.

    Turns with a measurement that is not positive do not count; 0 if there are no others.
    """
    logs = _logs(turns)
    if not logs:
        return 0.0
    outer = len(logs) // 4
    return math.exp(mean(logs[outer : len(logs) - outer]))


def relative_error(turns: Turns) -> float:
    """Return the standard error of `ratio`, as a part of it; infinite for fewer than three turns.

    It is that of the plain mean, which is no smaller where a few turns are far off.
    """
    logs = _logs(turns)
    return stdev(logs) / math.sqrt(len(logs)) if len(logs) > 2 else math.inf


def _logs(turns: Turns) -> list[float]:
    return sorted(math.log(a / b) for a, b in turns if a > 0 and b > 0)
