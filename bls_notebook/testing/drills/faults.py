"""The faults that models are drilled with: what each is called, and of which models it can be had."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bls_notebook.engine.errors import BLSError


@dataclass(frozen=True)
class Fault:
    """One way to misbehave.

    ``kind`` is error (no answer but an error), data (an answer that is wrong), timing (the right one, at
    another time) or stream (a stream of right responses that are too many or too few).
    """

    name: str
    kind: str
    says: str


FAULTS = (
    Fault("error", "error", "answers with an error"),
    Fault("cancelled", "error", "answers with an error of the code CANCELLED"),
    Fault("raises", "error", "fails with an exception, so that the error has several lines"),
    Fault("not-ready", "error", "is not loaded"),
    Fault("unloaded", "error", "is unloaded after its first answer"),
    Fault("out-of-memory", "error", "has no room left on its GPU"),
    Fault("missing-output", "data", "answers without its outputs"),
    Fault("empty", "data", "answers tensors without a value"),
    Fault("shape", "data", "answers tensors with a dimension more"),
    Fault("data-type", "data", "answers tensors of another data type"),
    Fault("nan", "data", "answers NaN"),
    Fault("inf", "data", "answers infinity"),
    Fault("huge", "data", "answers the largest numbers that there are, and long texts"),
    Fault("no-response", "stream", "ends its stream without a response"),
    Fault("early-end", "stream", "ends its stream after half of its responses"),
    Fault("duplicate", "stream", "sends each response twice"),
    Fault("error-midway", "error", "sends an error after half of its responses"),
    Fault("no-final-flag", "stall", "sends its responses, and never says that they were all"),
    Fault("stall", "stall", "does not answer"),
    Fault("slow", "timing", "answers late"),
    Fault("other-order", "timing", "answers the second of two requests first"),
)
WELL = Fault("well", "none", "answers as ever")
_BY_NAME = {fault.name: fault for fault in FAULTS}
STREAMS = ("no-response", "early-end", "duplicate", "error-midway", "no-final-flag")
# Of these, pairs are made: the others would tell the same of two models.
IN_PAIRS = ("error", "missing-output", "nan", "empty")


def faults_named(names: Iterable[str] | None) -> tuple[Fault, ...]:
    """Return faults by their names, all of them for None; a BLSError where there is none of such a name."""
    if names is None:
        return FAULTS
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in _BY_NAME:
            raise BLSError(f"drill: no fault {name!r}; there are: {', '.join(_BY_NAME)}")
    return tuple(fault for fault in FAULTS if fault.name in wanted)


def suggested_faults(words: Sequence[str], models: Sequence[object]) -> list[str]:
    """Return what Tab offers for a fault."""
    return list(_BY_NAME)
