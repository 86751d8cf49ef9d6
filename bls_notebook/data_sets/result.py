"""`MapResult`: the answers to a data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from bls_notebook.engine import BLSError
from bls_notebook.records import Printable

from .records import FailedRow, MapRecord, PartRecord
from .rows import ERROR, Array, RowAnswers, together, unanswered

Read = Callable[[], RowAnswers]


class MapResult(Printable):
    """The answers to a data set, by output.

    ``result["OUT"]`` is an array whose first axis is the row; with ``errors="column"``, failed rows are masked and
    ``result["error"]`` has their messages. With ``into=``, it is read from the files.

    Attributes
    ----------
    record : MapRecord
        Rows, times and workers of each part, and the failed rows.
    """

    def __init__(self, record: MapRecord, read: dict[int, Read], errors: str, profile: Callable[[int], Any]) -> None:
        self.record = record
        self._read, self._errors, self._profile = read, errors, profile

    @property
    def rows(self) -> int:
        """Number of rows that were answered or failed."""
        return self.record.rows

    @property
    def slowest(self) -> tuple[PartRecord, ...]:
        """The parts that this run computed, the slowest first."""
        return self.record.slowest

    @property
    def failures(self) -> tuple[FailedRow, ...]:
        """All rows without an answer, with their messages."""
        return tuple(FailedRow(row, message) for row, message in self.answers.failures.items())

    @cached_property
    def answers(self) -> RowAnswers:
        """All answers; of an interrupted run, those to the finished parts, without gaps."""
        parts = (self._read[part.number]() for part in self.record.parts)
        return together([unanswered(self.record.outputs, {}), *parts])

    def keys(self) -> list[str]:
        """Return the names of the columns."""
        return [*self.record.outputs, *([ERROR] if self._errors == "column" else [])]

    _ipython_key_completions_ = keys

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __getitem__(self, name: str) -> Array:
        __tracebackhide__ = True
        if name not in self.keys():
            raise KeyError(f"no column {name!r}; the columns are {', '.join(self)}")
        outputs = [name] if name in self.record.outputs else []
        return self.answers.columns(outputs, self._errors)[name]

    def profile(self, part: int) -> Any:
        """Return a profile of the requests of one part, sent again to the kernel's models.

        Raises
        ------
        BLSError
            There is no such part, or the data was an iterator, which cannot be read again.
        """
        if part not in self._read:
            raise BLSError(
                f"part {part}: expected the number of a part of this result, from 0 to {len(self._read) - 1}"
            )
        return self._profile(part)

    def __repr__(self) -> str:
        return f"<MapResult of {self.record.model}: {self.rows:,} rows, {self.record.failures:,} failed>"
