"""Verdicts on async: the cause that it helped or did not, the measurements, and the sentences. Frozen, JSON-able."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bls_notebook.records import ModelSeen, Record

from .spans import SessionData, Span

# By cause.
TEXTS: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("verdict_texts.json").read_text("utf-8"))
CAUSES = TEXTS["causes"]


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
        if self.of_rounds:
            return self.of_rounds
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

    ``cause`` is a key of `CAUSES`, ``sentence`` explains it with figures, ``advice`` names the change to make.
    ``model`` is the model that causes it. ``best`` is the best possible speedup; ``chain`` (ns, the longest
    request by itself) is one of its bounds. ``queued`` is the fraction of the gathered wall time in which a
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


ROUGH = 0.2  # fraction of the time that runnable threads waited for a processor: more makes the figures rough
WORTH = 1.15  # the smallest speedup that is worth a mention
DOUBTFUL = 0.075  # standard error of a speedup: a larger one makes the figures rough


@dataclass(frozen=True)
class Facts:
    """The figures and observations for the sentence of a verdict; times in ns."""

    verdict: Verdict
    measured: Measured
    seen: ModelSeen | None
    python: int
    waiting: int
    batch: int
    cached: str = ""  # the requests that the response cache answered, in words
    alone: float = 0.0  # self time of a request in the sequential run
    together: float = 0.0  # self time of a request in the gathered run

    @property
    def instances(self) -> int:
        """The number of instances of the model."""
        return len(self.seen.instances) if self.seen is not None else 0


def times(value: float) -> str:
    """Spell a factor: ``1.0``, ``7.8``, ``12``."""
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def give_or_take(relative_error: float) -> str:
    """Return the uncertainty of a speedup as a suffix for it; empty if its standard error is small."""
    return "" if relative_error < DOUBTFUL else f", give or take {2 * relative_error:.0%}"


_NOTHING_QUEUED = "Nothing queued for long: {brought}, of {best} at best; the longest request takes {chain} by itself."


def sentence(f: Facts) -> str:
    """Return the sentence that says whether async helped, and why or why not."""
    v, m = f.verdict, f.measured
    cores = m.cpu_gathered / max(1, m.gathered)
    instances = "one instance" if f.instances == 1 else f"{f.instances} instances"
    brought = "async brought nothing" if m.speedup < WORTH else f"async was {times(m.speedup)} times as fast"
    case = "cores of others" if v.cause == "cores" and cores < m.cores / 2 else v.cause
    return TEXTS["comparison"].get(case, _NOTHING_QUEUED).format(
        name=f"`{v.model}`",
        brought=brought,
        several=f"{f.waiting} request{'' if f.waiting == 1 else 's'}",
        instances=instances,
        more=f", and it cannot help more until `instance_group.count` > {f.instances}" if v.count else "",
        queued=v.queued, cores=cores, turns=max(1.0, cores), of=m.cores, cached=f.cached, batch=f.batch,
        held=min(1.0, f.python / max(1, m.sequential)),
        who=f"The {instances} of `{v.model}`" if f.instances > 1 else f"Requests to `{v.model}`",
        together=time_of(f.together), alone=time_of(f.alone), each=time_of(m.sequential / max(1, m.requests)),
        speedup=times(m.speedup), best=times(v.best), chain=time_of(v.chain),
    )  # fmt: skip


def advice(f: Facts) -> str:
    """Return the change to make, with its predicted speedup."""
    v = f.verdict
    more = batch = ""
    if v.count:
        whom = " and ".join(f"`{m}`" for m in v.models)
        more = f"Set `instance_group.count` to {v.count} for {whom}: predicted {times(v.predicted)} times as"
        more += " fast as today's exec"
        if v.best > v.predicted * 1.15:
            more += f" ({times(v.best)} at best, with an instance for each request)"
        more += "."
    if f.seen is not None and f.seen.max_batch_size > 1 and f.seen.scheduler == "default":
        batch = f"Or let it batch: dynamic_batching, as it takes batches of {f.seen.max_batch_size}."
    on_server = max((w.on_server for w in v.what_ifs), default=0.0)
    there = f": up to {times(on_server)} times as fast there" if on_server > WORTH else ""
    whose = "instance" if f.instances > 1 else "request"
    words = TEXTS["advice"].get(v.cause, "{more}")
    predicted = times(v.predicted)
    return words.format(more=more, batch=batch, there=there, whose=whose, predicted=predicted).strip()


def roughness(f: Facts) -> str:
    """Return why the figures are rough; empty if they are not."""
    part = max(
        f.measured.waited_sequential / max(1, f.measured.sequential),
        f.measured.waited_gathered / max(1, f.measured.gathered * f.measured.cores),
    )
    if part < ROUGH:
        unsure = give_or_take(f.measured.relative_error)
        if not unsure or f.verdict.cause == "little":  # runs with so little work always differ much
            return ""
        return (
            f"The runs differed much: the speedup is {times(f.measured.speedup)}{unsure}, and predictions are "
            "as uncertain. Other programs may use the machine; compare again when it is quiet."
        )
    return (
        f"Other programs used the processors: for {min(1.0, part):.0%} of the time a runnable thread waited for "
        "one. The figures are rough; compare again on a quiet machine."
    )


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
