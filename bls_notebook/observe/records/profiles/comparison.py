"""What a comparison of sequential `exec` with gathered `async_exec` found: frozen, plain, JSON-able."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bls_notebook.observe.analysis.quartiles import NONE, Quartiles
from bls_notebook.observe.record_file import RecordFile
from bls_notebook.observe.records.plain import Record
from bls_notebook.observe.records.profiles.session import Session, Span
from bls_notebook.observe.visible import spoken

SCHEMA = 1

CAUSES = {
    "helped": "async helped, about as much as it can",
    "partly": "async helped, less than it could",
    "queue": "requests queued for too few instances",
    "gil": "pure Python holds the interpreter's lock",
    "cores": "the processors are busy",
    "sync_exec": "sync exec inside an async execute",
    "blocking": "a coroutine blocks its event loop",
    "contention": "instances wait for each other",
    "cached": "the response cache answered",
    "one_at_a_time": "an async execute that is not decoupled serves one batch at a time",
    "batched": "a batcher serves many requests at once",
    "little": "too little work",
    "chain": "one request's own chain of work",
    "one": "there was nothing to overlap",
    "failed": "requests failed",
}


def failures(session: Session) -> int:
    """Return how many requests of a run failed. (What a model sent may fail.)"""
    return sum(1 for _ in _failed(session))


def _failed(session: Session) -> Iterator[Span]:
    return (s for s in session.spans if not s.parent and s.state in ("error", "cancelled"))


@dataclass(frozen=True, slots=True, repr=False)
class Measured(Record):
    """What was measured beside the spans, of medians of runs; times in ns.

    ``cpu_sequential`` and ``cpu_gathered`` are processor time of the whole process; ``waited_sequential`` and
    ``waited_gathered`` the sum of what its threads waited while other programs had the processors. ``cores``
    are the processors that it may use, ``parallel`` how many times as much as one thread they got done, 0
    where that was not measured. ``of_rounds`` is the speed-up as all rounds say it, each a run of both ways,
    and ``relative_error`` its relative standard error; 0 where they are not known. ``gil_share`` is the part
    of the sequential run in which the GIL was held, -1 where that was not measured. ``requests`` is how many
    were sent, ``failed`` how many of both ways failed: there is no speed-up then.
    """

    FORMER_NAMES: ClassVar[Mapping[str, str]] = {"doubt": "relative_error", "held": "gil_share"}

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


@dataclass(frozen=True, slots=True, repr=False)
class Setting(Record):
    """The runs with one instance count; 0 is the models as they are configured.

    ``sequential_walls`` and ``gathered_walls`` are of every run, ns; the sessions are of the median runs.
    """

    FORMER_NAMES: ClassVar[Mapping[str, str]] = {
        "sequential_spread": "sequential_quartiles",
        "gathered_spread": "gathered_quartiles",
    }

    count: int
    sequential: Session
    gathered: Session
    measured: Measured
    sequential_walls: tuple[int, ...] = ()
    gathered_walls: tuple[int, ...] = ()
    sequential_quartiles: Quartiles = NONE
    gathered_quartiles: Quartiles = NONE

    @property
    def problem(self) -> str:
        """What a request of these runs failed with; empty if none did. (What a model sent may fail.)"""
        failed = next((s for session in (self.gathered, self.sequential) for s in _failed(session)), None)
        return "" if failed is None else spoken(failed.error) or failed.state


@dataclass(frozen=True, slots=True, repr=False)
class Verification(Record):
    """A predicted change, run: ``models`` with ``count`` instances; speed-ups are against exec.

    ``error`` says why it could not be run; ``measured`` is 0 then. ``relative_error`` is the relative
    standard error of what was measured; 0 where it is not known.
    """

    FORMER_NAMES: ClassVar[Mapping[str, str]] = {"doubt": "relative_error"}

    models: tuple[str, ...]
    count: int
    predicted: float
    measured: float
    error: str = ""
    relative_error: float = 0.0

    @property
    def off(self) -> float:
        """How far the prediction was off, as a part of what was measured."""
        return abs(self.predicted - self.measured) / self.measured if self.measured else 0.0


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Record):
    """One workload as sequential `exec` and as gathered `async_exec`, and why the one is (not) faster.

    ``settings`` begins with the models as they are; one more for each instance count that was asked for.
    """

    model: str
    requests: int
    repeat: int
    settings: tuple[Setting, ...]
    verdict: Verdict
    verification: Verification | None = None
    schema: int = SCHEMA

    @property
    def sequential(self) -> Session:
        """The median sequential run, with the models as they are."""
        return self.settings[0].sequential

    @property
    def gathered(self) -> Session:
        """The median gathered run, with the models as they are."""
        return self.settings[0].gathered

    @property
    def speedup(self) -> float:
        """How many times as fast gathered was, with the models as they are."""
        return self.settings[0].measured.speedup

    def save(self, path: str | Path) -> Path:
        """Write the comparison to a JSON file, for `load_comparison`; compressed where it ends with ``.gz``.

        Returns
        -------
        Path
            Of the file.

        Raises
        ------
        BLSError
            It cannot be written.
        """
        return _FILE.save(self, path)


_FILE = RecordFile(Comparison, "bls_notebook.comparison", SCHEMA, "a comparison", "a comparison")


def load_comparison(path: str | Path) -> Comparison:
    """Read a comparison that was saved.

    Parameters
    ----------
    path : str or Path
        Of a file that `save` has written.

    Returns
    -------
    Comparison

    Raises
    ------
    BLSError
        The file cannot be read, holds something else, or was written by a newer version; the message says
        which.
    """
    return _FILE.load(path)
