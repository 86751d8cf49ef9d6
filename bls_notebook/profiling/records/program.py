"""What an `execute` did with the answers to the requests that it sent, in the order of its program."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records.plain import Record
from bls_notebook.records.seen import CodeLine


@dataclass(frozen=True, slots=True, repr=False)
class Call(Record):
    """A request that an `execute` sent.

    ``needs`` are the calls (their places in the program) whose outputs are among its inputs as they were
    received; ``line`` is where it was sent, and ``lines`` are those of model.py that led there, the innermost
    first. ``ordered`` says that it follows an earlier one of ``needs`` for
    the order alone: a sequence, say.
    """

    model: str
    version: int = 1
    needs: tuple[int, ...] = ()
    ordered: bool = False
    line: CodeLine | None = None
    lines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Program(Record):
    """One `execute`, as a single thread of work.

    ``steps`` are in order: nanoseconds of own work since the step before, the number of a call, and whether
    its answer is needed here (1) or it is sent here (0). An answer counts as needed where the program first
    looks at its content, and from then on all that follows may depend on it. ``own`` is the work after the
    last step.
    """

    calls: tuple[Call, ...] = ()
    steps: tuple[tuple[int, int, int], ...] = ()
    own: int = 0
