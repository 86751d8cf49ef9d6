"""What came of trying a model repository. Frozen, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records.plain import Record


@dataclass(frozen=True, slots=True, repr=False)
class TriedModel(Record):
    """One model: ``kind`` is real, stub, or absent where it does not serve at all.

    ``why`` says why it is not real, or what was done for it; ``remedy`` is what to do and type, code between
    backticks. ``calls`` are the models that it calls, ``seconds`` what loading it took.
    """

    name: str
    backend: str = ""
    kind: str = "real"
    why: str = ""
    remedy: str = ""
    seconds: float | None = None
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Tried(Record):
    """A repository that was tried.

    ``entries`` are the models that no other calls, each with the line of ``requests`` that asks it; ``notes``
    what was done for all of them. ``left`` are models that were not come to, because of Ctrl-C.
    """

    folder: str
    models: tuple[TriedModel, ...] = ()
    entries: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    seconds: float = 0.0
