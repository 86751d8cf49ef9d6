"""Verdicts on async: the cause that it helped or did not, and the measurements. Frozen, JSON-able."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from bls_notebook.records import Record

from .spans import SessionData, Span


def failures(session: SessionData) -> int:
    """Return how many requests of a run failed; failed calls by models do not count."""
    return sum(1 for _ in failed_roots(session))


def failed_roots(session: SessionData) -> Iterator[Span]:
    return (s for s in session.spans if not s.parent and s.state in ("error", "cancelled"))


@dataclass(frozen=True, slots=True, repr=False)
class LoopSeen(Record):
    """The fraction (0 to 1) of a gathered run in which the event loops of a model ran the model's own code."""

    model: str
    version: int
    share: float


@dataclass(frozen=True, slots=True, repr=False)
class Measured(Record):
    """Measurements of the median runs besides their spans; times in ns.

    ``cpu_sequential`` and ``cpu_gathered`` are processor times of the whole process; ``waited_sequential`` and
    ``waited_gathered`` sum the time that its threads waited for a processor. ``cores`` is the number of
    processors that the process may use, ``parallel`` their measured throughput relative to one thread, 0 if
    not measured. ``of_rounds`` is the mean speedup of the middle half of the rounds (a round is a run of each
    kind), ``relative_error`` its relative standard error; 0 if unknown. ``gil_share`` is the fraction of the
    sequential run in which the GIL was held, -1 if not measured. ``requests`` were sent; ``failed`` of them
    failed in either run, and then there is no speedup. ``loops`` are observations of the event loops of
    decoupled async models.
    """

    requests: int
    sequential: int
    gathered: int
    cpu_sequential: int = 0
    cpu_gathered: int = 0
    waited_sequential: int = 0
    waited_gathered: int = 0
    cores: int = 1
    parallel: float = 0.0
    gil_share: float = -1.0
    of_rounds: float = 0.0
    relative_error: float = 0.0
    failed: int = 0
    loops: tuple[LoopSeen, ...] = ()

    @property
    def speedup(self) -> float:
        """The speedup of the gathered run; 0 if requests failed."""
        if self.failed:
            return 0.0
        return self.sequential / self.gathered if self.gathered else 0.0


@dataclass(frozen=True, slots=True, repr=False)
class WhatIf(Record):
    """A prediction for one instance count of the models that requests queue for.

    ``on_server`` is the speedup on a Triton server, where each instance is a process.
    """

    count: int
    wall: int = 0
    speedup: float = 0.0
    on_server: float = 0.0


@dataclass(frozen=True, slots=True, repr=False)
class Verdict(Record):
    """The cause that async helped, or did not.

    ``cause`` is a key of `analysis.verdict.CAUSES`, ``sentence`` explains it with figures, ``advice`` names the
    change to make. ``model`` is the model that causes it. ``best`` is the best possible speedup; ``chain`` (ns, the
    longest request by itself) is one of its bounds. ``queued`` is the fraction of the gathered wall time in which a
    request waited for ``model``. The ``what_ifs`` change the instance counts of ``models``; ``count`` is the
    smallest count near the best of them, 0 if none helps, and ``predicted`` its speedup. ``note`` says why the
    figures are rough, if they are.
    """

    cause: str
    sentence: str
    advice: str = ""
    model: str = ""
    speedup: float = 0.0
    best: float = 0.0
    chain: int = 0
    queued: float = 0.0
    models: tuple[str, ...] = ()
    count: int = 0
    predicted: float = 0.0
    what_ifs: tuple[WhatIf, ...] = ()
    note: str = ""


WORTH = 1.15  # the smallest speedup that is worth a mention
DOUBTFUL = 0.075  # standard error of a speedup: a larger one makes the figures rough


def times(value: float) -> str:
    """Spell a factor: ``1.0``, ``7.8``, ``12``."""
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def give_or_take(relative_error: float) -> str:
    """Return the uncertainty of a speedup as a suffix for it; empty if its standard error is small."""
    return "" if relative_error < DOUBTFUL else f", give or take {2 * relative_error:.0%}"


class _HasModel(Protocol):
    @property
    def model(self) -> str: ...


def calls_of(calls: Sequence[_HasModel]) -> list[str]:
    """Name the models of calls: ```resize```, ``3 calls of `detect```."""
    counts = Counter(call.model for call in calls)
    return [f"`{name}`" if n == 1 else f"{n} calls of `{name}`" for name, n in counts.items()]


def listed(words: Sequence[str]) -> str:
    """Join words: ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def time_of(ns: float) -> str:
    """Spell a time with three digits at most: ``7.3 ms``."""
    for unit, size in (("s", 1e9), ("ms", 1e6)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns / 1e3:.3g} µs"
