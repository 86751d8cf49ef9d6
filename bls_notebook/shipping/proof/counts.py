"""How often models were asked and ran, on both sides: Triton's statistics, as they grew."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from .certificate import ModelCounts

Counts = Mapping[str, tuple[int, int, int, int]]
"""Of models: requests that were answered, those that failed, inferences (rows), executions."""

_PATIENCE = 2.0  # seconds: a server counts a request after it has sent its answer
_PAUSE = 0.02


def counts(model_stats: Sequence[Mapping[str, Any]]) -> tuple[int, int, int, int]:
    """Return the counts of a model's statistics, its versions added up."""
    found = [0, 0, 0, 0]
    for row in model_stats:
        of = row.get("inference_stats", {})
        found[0] += int(of.get("success", {}).get("count", 0))
        found[1] += int(of.get("fail", {}).get("count", 0))
        found[2] += int(row.get("inference_count", 0))
        found[3] += int(row.get("execution_count", 0))
    return found[0], found[1], found[2], found[3]


def grown(places: tuple[Any, Any], before: tuple[Counts, Counts], alone: bool) -> tuple[ModelCounts, ...]:
    """Return what the counts of two places have grown by, once they agree, or after a while.

    ``counts()`` of a place gives them as they are now. Where batches are what was sent (``alone``),
    executions are to agree too.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        here, there = (place.counts() for place in places)
        found = tuple(
            ModelCounts(name, _less(here[name], before[0][name]), _less(there[name], before[1][name]), alone)
            for name in sorted(before[0])
            if name in here and name in there and name in before[1]
        )
        if all(each.equal for each in found) or time.monotonic() > deadline:
            return found
        time.sleep(_PAUSE)


def _less(now: Sequence[int], before: Sequence[int]) -> tuple[int, ...]:
    return tuple(a - b for a, b in zip(now, before, strict=True))
