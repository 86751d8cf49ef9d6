"""`Comparison`: sequential `exec` and gathered `async_exec` of one workload, measured. Frozen, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bls_notebook.profiling.session import Session
from bls_notebook.records import NONE, Quartiles, Record, RecordFile, spoken

from .before_after import BeforeAfter
from .line_times import ModelLines
from .verdicts import LoopSeen, Measured, Verdict, WhatIf, failed_roots, failures

__all__ = [
    "Comparison", "LoopSeen", "Measured", "MeasuredSetting", "Verdict",
    "Verification", "WhatIf", "failures", "load_comparison",
]  # fmt: skip

SCHEMA = 1


@dataclass(frozen=True, slots=True, repr=False)
class MeasuredSetting(Record):
    """The runs with one instance count; ``count`` 0 means today's configuration.

    The quartiles are of the wall times of all runs (ns); the sessions record the median runs. ``lines`` are the
    time by line in all sequential runs.
    """

    count: int
    sequential: Session
    gathered: Session
    measured: Measured
    sequential_quartiles: Quartiles = NONE
    gathered_quartiles: Quartiles = NONE
    lines: tuple[ModelLines, ...] = ()

    @property
    def problem(self) -> str:
        """The error of a failed request of these runs; empty if none failed. Failed calls by models do not count."""
        failed = next((s for session in (self.gathered, self.sequential) for s in failed_roots(session)), None)
        return "" if failed is None else spoken(failed.error) or failed.state


@dataclass(frozen=True, slots=True, repr=False)
class Verification(Record):
    """A run of a predicted change: ``models`` with ``count`` instances; speedups are relative to today's exec.

    If the change could not be run, ``error`` says why and ``measured`` is 0. ``relative_error`` is the relative
    standard error of ``measured``, 0 if unknown.
    """

    models: tuple[str, ...]
    count: int
    predicted: float
    measured: float
    error: str = ""
    relative_error: float = 0.0

    @property
    def off(self) -> float:
        """The error of the prediction, as a fraction of the measured speedup."""
        return abs(self.predicted - self.measured) / self.measured if self.measured else 0.0


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Record):
    """One workload with sequential `exec` and with gathered `async_exec`, and why async helped or did not.

    ``settings`` begins with today's configuration; each requested instance count adds a setting.
    ``change`` compares the sequential runs with an earlier profile.
    """

    model: str
    requests: int
    repeat: int
    settings: tuple[MeasuredSetting, ...]
    verdict: Verdict
    verification: Verification | None = None
    change: BeforeAfter | None = None
    schema: int = SCHEMA

    @property
    def sequential(self) -> Session:
        """The median sequential run with today's configuration."""
        return self.settings[0].sequential

    @property
    def gathered(self) -> Session:
        """The median gathered run with today's configuration."""
        return self.settings[0].gathered

    @property
    def speedup(self) -> float:
        """The speedup of the gathered run over the sequential one, with today's configuration."""
        return self.settings[0].measured.speedup

    def save(self, path: str | Path) -> Path:
        """Write the comparison to a JSON file, for `bls.open_file`; compressed if its name ends with ``.gz``."""
        return _FILE.save(self, path)


_FILE = RecordFile(Comparison, "bls_notebook.comparison", SCHEMA, "a comparison", "a comparison")
load_comparison = _FILE.load
