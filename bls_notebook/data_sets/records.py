"""The record of a data set's run: plain data for displays."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records import Record


@dataclass(frozen=True, slots=True, repr=False)
class PartRecord(Record):
    """One part: its rows, the worker that answered it, and when (s after the start).

    ``worker`` is empty if an earlier run has finished it.
    """

    number: int
    first: int
    rows: int
    worker: str = ""
    began: float = 0.0
    seconds: float = 0.0
    failed: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class FailedRow(Record):
    """A row without an answer."""

    row: int
    message: str


@dataclass(frozen=True, slots=True, repr=False)
class MapRecord(Record):
    """A model's answers to a data set.

    ``total`` is the number of rows (0 if unknown), ``failed`` are the first rows without an answer and
    ``failures`` their number. ``checked`` is the number of rows that the kernel answered too, ``differences`` says how
    its answers differ. ``into`` is the folder of the answers.
    """

    model: str
    outputs: tuple[str, ...] = ()
    rows: int = 0
    total: int = 0
    seconds: float = 0.0
    parts: tuple[PartRecord, ...] = ()
    failed: tuple[FailedRow, ...] = ()
    failures: int = 0
    into: str = ""
    interrupted: bool = False
    checked: int = 0
    differences: tuple[str, ...] = ()
    again: bool = True

    @property
    def computed(self) -> tuple[PartRecord, ...]:
        """The parts that this run computed."""
        return tuple(part for part in self.parts if part.worker)

    @property
    def slowest(self) -> tuple[PartRecord, ...]:
        """The parts that this run computed, the slowest first."""
        return tuple(sorted(self.computed, key=lambda part: -part.seconds))

    @property
    def workers(self) -> tuple[str, ...]:
        """Names of the workers."""
        return tuple(sorted({part.worker for part in self.computed}, key=lambda name: (len(name), name)))

    @property
    def rate(self) -> float:
        """Rows per second of this run."""
        return sum(part.rows for part in self.computed) / self.seconds if self.seconds else 0.0
