"""What a run with the calls of a model sent ahead showed: frozen, plain, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.observe.records.plain import Record
from bls_notebook.observe.records.profiles.comparison import Measured
from bls_notebook.observe.records.profiles.program import Program
from bls_notebook.observe.records.profiles.session import Session


@dataclass(frozen=True, slots=True, repr=False)
class Overlap(Record):
    """One workload as a model is written, and with its `exec` calls sent ahead: `compare(overlap=True)`.

    ``sentence`` says which calls could have been in flight together, ``proof`` what sending them ahead
    brought, ``advice`` which instances would bring more. ``predicted`` and ``speedup`` are times as fast as
    written; ``speedup`` is 0 where that was not proven, and ``problem`` says why. ``equal`` says that every
    answer was the same, bit for bit. ``kept`` is what was left as it is written. ``written`` and ``ahead``
    are the sessions of the median runs, the first with its ``ghosts``: where calls could have begun.
    ``programs`` are what each `execute` did with its answers.
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
