"""What a drill found: what a model did while what it calls misbehaved. Frozen, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records.base import Record

# What may come of a case, and what that is worth: good, odd, bad, or open where nothing is said.
VERDICTS = {
    "clear": "good",
    "fallback": "good",
    "unharmed": "good",
    "vague": "odd",
    "stumbles": "odd",
    "silent": "odd",
    "waits": "odd",
    "crash": "bad",
    "rubbish": "bad",
    "hang": "bad",
    "leak": "bad",
    "spoilt": "bad",
    "unaffected": "open",
    "unjudged": "open",
    "not reached": "open",
}


@dataclass(frozen=True, slots=True, repr=False)
class Planted(Record):
    """A fault, and the model that has it."""

    model: str
    fault: str


@dataclass(frozen=True, slots=True, repr=False)
class CodePlace(Record):
    """A line of a model's code."""

    model: str
    file: str = ""
    line: int = 0
    code: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class DrilledCase(Record):
    """One fault, or two at a time, and what came of it.

    ``verdict`` is one of `VERDICTS`; ``said`` why, in a line. ``error`` is what the requester was told, empty
    where it was told nothing. ``at`` is where it went wrong, ``sent`` the line that calls the model that
    misbehaves: each is None where that is not known. ``calls`` counts the requests that this one got.
    """

    faults: tuple[Planted, ...]
    verdict: str
    said: str = ""
    error: str = ""
    at: CodePlace | None = None
    sent: CodePlace | None = None
    calls: int = 0
    seconds: float = 0.0

    @property
    def worth(self) -> str:
        """What the verdict is worth: good, odd, bad or open."""
        return VERDICTS.get(self.verdict, "open")

    @property
    def name(self) -> str:
        """The faults in words."""
        return " and ".join(f"{each.model}: {each.fault}" for each in self.faults)


@dataclass(frozen=True, slots=True, repr=False)
class Drilled(Record):
    """What a model did, one fault after the other, with one request.

    ``callees`` are the models that the request reached, ``unreached`` those that the code names beside them.
    ``notes`` say what was not tried, and why.
    """

    model: str
    version: int = 0
    callees: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()
    cases: tuple[DrilledCase, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    timeout: float = 0.0

    def of(self, worth: str) -> tuple[DrilledCase, ...]:
        """Return the cases that are worth that: good, odd, bad or open."""
        return tuple(case for case in self.cases if case.worth == worth)

    def case(self, model: str, fault: str) -> DrilledCase:
        """Return the case of one fault of one model.

        Raises KeyError: there is none.
        """
        for case in self.cases:
            if case.faults == (Planted(model, fault),):
                return case
        raise KeyError(f"no case {model}: {fault}; there are {', '.join(c.name for c in self.cases)}")
