"""What a comparison of sequential `exec` with gathered `async_exec` found: frozen, plain, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bls_notebook.records.base import Record
from bls_notebook.records.measurements import NONE, Quartiles
from bls_notebook.records.record_file import RecordFile
from bls_notebook.records.visible_text import spoken

from .session import Session
from .verdicts import CAUSES, LoopSeen, Measured, Verdict, WhatIf, failed_roots, failures

__all__ = [
    "CAUSES", "Comparison", "LoopSeen", "Measured", "MeasuredSetting", "Verdict",
    "Verification", "WhatIf", "failures", "load_comparison",
]  # fmt: skip

SCHEMA = 1


@dataclass(frozen=True, slots=True, repr=False)
class MeasuredSetting(Record):
    """The runs with one instance count; 0 is the models as they are configured.

    ``sequential_walls`` and ``gathered_walls`` are of every run, ns; the sessions are of the median runs.
    """

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
        failed = next((s for session in (self.gathered, self.sequential) for s in failed_roots(session)), None)
        return "" if failed is None else spoken(failed.error) or failed.state


@dataclass(frozen=True, slots=True, repr=False)
class Verification(Record):
    """A predicted change, run: ``models`` with ``count`` instances; speed-ups are against exec.

    ``error`` says why it could not be run; ``measured`` is 0 then. ``relative_error`` is the relative
    standard error of what was measured; 0 where it is not known.
    """

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
    settings: tuple[MeasuredSetting, ...]
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
        """Write the comparison to a JSON file, for `bls.load`; compressed where it ends with ``.gz``.

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
