"""What a run with the calls of a model sent ahead showed: frozen, plain, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records.changes import Change
from bls_notebook.records.plain import Record
from bls_notebook.records.seen import CodeLine

from .comparison import Measured
from .program import Program
from .session import Session


@dataclass(frozen=True, slots=True, repr=False)
class CodeChange(Record):
    """What to write so that calls which do not need each other are in flight together.

    ``source`` is the whole model.py, changed, and ``change`` how; where ``source`` is empty, ``reason`` says
    why there is no change, and ``template`` shows its form. ``lines`` are those that wait for one another,
    numbered as in the cell. Where the changed model was run, ``proof`` says what came of it, ``proven``
    whether its answers are equal and it is faster, ``speedup`` times. ``file`` is what the source is called,
    ``folder`` where it lies on disk, if it does.
    """

    file: str = ""
    folder: str = ""
    lines: tuple[CodeLine, ...] = ()
    source: str = ""
    change: Change | None = None
    reason: str = ""
    template: str = ""
    proof: str = ""
    proven: bool = False
    speedup: float = 0.0


@dataclass(frozen=True, slots=True, repr=False)
class Overlap(Record):
    """One workload as a model is written, and with its `exec` calls sent ahead: `compare(overlap=True)`.

    ``sentence`` says which calls could have been in flight together, ``proof`` what sending them ahead
    brought, ``advice`` which instances would bring more. ``predicted`` and ``speedup`` are times as fast as
    written; ``speedup`` is 0 where that was not proven, and ``problem`` says why. ``equal`` says that every
    answer was the same, bit for bit. ``kept`` is what was left as it is written. ``written`` and ``ahead``
    are the sessions of the median runs, the first with its ``ghosts``: where calls could have begun.
    ``programs`` are what each `execute` did with its answers; ``code`` is the change to write, where there is
    a gain.
    """

    model: str
    requests: int
    rounds: int
    sentence: str
    proof: str
    advice: str
    predicted: float
    speedup: float
    relative_error: float
    equal: bool
    problem: str
    kept: tuple[str, ...]
    written: Session
    ahead: Session
    measured: Measured
    programs: tuple[Program, ...] = ()
    code: CodeChange | None = None
