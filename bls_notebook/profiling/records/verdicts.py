"""Whether and why async helped, what was measured for that, and what would: frozen, plain, JSON-able."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from bls_notebook.records.base import Record

from .spans import SessionData, Span

CAUSES = {
    "helped": "async helped, about as much as it can",
    "partly": "async helped, less than it could",
    "queue": "requests queued for too few instances",
    "gil": "pure Python holds the interpreter's lock",
    "cores": "the processors are busy",
    "sync_exec": "sync exec inside an async execute",
    "blocking": "a coroutine blocks its event loop",
    "contention": "requests wait for each other on something shared",
    "cached": "the response cache answered",
    "one_at_a_time": "an async execute that is not decoupled serves one batch at a time",
    "batched": "a batcher serves many requests at once",
    "little": "too little work",
    "chain": "one request's own chain of work",
    "one": "there was nothing to overlap",
    "failed": "requests failed",
    "in_turn": "requests were sent one after the other",
    "notebook": "the notebook's own code took the time",
}


def failures(session: SessionData) -> int:
    """Return how many requests of a run failed. (What a model sent may fail.)"""
    return sum(1 for _ in failed_roots(session))


def failed_roots(session: SessionData) -> Iterator[Span]:
    return (s for s in session.spans if not s.parent and s.state in ("error", "cancelled"))


class ClockSample(NamedTuple):
    """Clocks read by a thread that sleeps and wakes up again; ns, since the session began.

    ``cpu`` is processor time of the other threads. ``took`` is the time between both readings without what
    the thread waited for a processor; it is ``late`` if that is longer than its sleep: it waited for the GIL.
    """

    begin: int
    end: int
    cpu: int
    took: int
    late: bool


@dataclass(frozen=True, slots=True, repr=False)
class LoopSeen(Record):
    """The part (0 to 1) of a gathered run in which the event loops of a model stood in the model's code."""

    model: str
    version: int
    share: float


@dataclass(frozen=True, slots=True, repr=False)
class Measured(Record):
    """What was measured beside the spans, of medians of runs; times in ns.

    ``cpu_sequential`` and ``cpu_gathered`` are processor time of the whole process; ``waited_sequential`` and
    ``waited_gathered`` the sum of what its threads waited while other programs had the processors. ``cores``
    are the processors that it may use, ``parallel`` how many times as much as one thread they got done, 0
    where that was not measured. ``of_rounds`` is the speed-up as all rounds say it, each a run of both ways,
    and ``relative_error`` its relative standard error; 0 where they are not known. ``gil_share`` is the part
    of the sequential run in which the GIL was held, -1 where that was not measured. ``requests`` is how many
    were sent, ``failed`` how many of both ways failed: there is no speed-up then. ``loops`` are what event
    loops were seen to do, of decoupled async models.
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
        """How many times as fast gathered was; 0 where requests failed."""
        if self.failed:
            return 0.0
        if self.of_rounds:
            return self.of_rounds
        return self.sequential / self.gathered if self.gathered else 0.0


@dataclass(frozen=True, slots=True, repr=False)
class WhatIf(Record):
    """What is predicted for instance counts of the models that requests queue for.

    ``on_server`` is the speed-up on a Triton server, where each instance is a process of its own.
    """

    count: int
    wall: int = 0
    speedup: float = 0.0
    on_server: float = 0.0


@dataclass(frozen=True, slots=True, repr=False)
class Verdict(Record):
    """Whether async helped, and if not, why not.

    ``cause`` is a key of `CAUSES`, ``sentence`` says it with figures, ``advice`` what to change. ``model`` is
    the one that it is about. ``best`` is the best possible speed-up, of which ``chain`` (ns, the longest of
    the requests by itself) is one bound. ``queued`` is the part of the gathered wall time in which a request
    waited for ``model``. ``models`` are those whose instance counts the ``what_ifs`` change, ``count`` is the
    count that gets nearest, 0 where none helps, and ``predicted`` the speed-up that it brings. ``note`` says
    what makes the figures rough, if something does.
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
