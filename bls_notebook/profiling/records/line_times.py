"""The time of a model's executions by line of code: plain data."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records import Record

SHORTEST = 2_000_000  # ns of an execution from which on shares of its lines are meaningful
ENOUGH = 10  # samples of a model from which on shares are meaningful


@dataclass(frozen=True, slots=True, repr=False)
class LineTime(Record):
    """One line of a model's code; ``share`` (0 to 1) of the time of the model's executions includes called helpers.

    ``own`` is the share without helpers, and ``waits`` the part of ``own`` in which the code waited; ``ns`` is the
    time of ``own`` in all executions. ``text`` is the source, ``file`` its file or cell.
    """

    file: str
    line: int
    function: str
    text: str
    share: float
    own: float
    waits: float
    ns: int
    samples: int

    @property
    def place(self) -> str:
        """The line in words: ``line 9 of execute, `time.sleep(1)```."""
        function = f" of {self.function}" if self.function else ""
        return f"line {self.line}{function}" + (f", `{self.text}`" if self.text else "")


@dataclass(frozen=True, slots=True, repr=False)
class ModelLines(Record):
    """The lines of a model's executions, the line with most own time first.

    The ``executions`` took ``ns`` in all. ``unseen`` is the share of the ``samples`` in which no line of own code
    was seen.
    """

    model: str
    version: int
    executions: int
    ns: int
    samples: int
    unseen: float
    lines: tuple[LineTime, ...]

    @property
    def known(self) -> bool:
        """Return whether there are enough samples, of long enough executions, for shares."""
        return self.samples >= ENOUGH and not self.are_short

    @property
    def are_short(self) -> bool:
        """Return whether the executions are so short that samples, which wait for the GIL, miss their first lines."""
        return self.ns < SHORTEST * self.executions
