"""Records of a trial: one report per model, and one for the repository."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records import Record, Remedy


@dataclass(frozen=True, slots=True, repr=False)
class TriedModel(Record):
    """One model: ``kind`` is real, stub, or absent if it is not loaded.

    ``why`` is the reason why it is not real, or a change to it; ``remedy`` is the fix, with code in backticks.
    ``calls`` are its callees, ``seconds`` its load time. ``broken``: its files or code are at fault, as opposed to
    something that is missing on this machine. ``unknown``: it needs a file outside of the project, which is missing
    here and may exist on a server. ``asked``: it got generated requests until it answered one; ``problem`` is the first
    error if it answered none, and ``warnings`` are the runtime's. The values are guesses, so an error need not be a
    fault. ``missing`` are files that its code looked for and did not find.
    """

    name: str
    backend: str = ""
    kind: str = "real"
    why: str = ""
    remedy: str | Remedy = ""
    seconds: float | None = None
    calls: tuple[str, ...] = ()
    broken: bool = False
    unknown: bool = False
    asked: bool = False
    problem: str = ""
    warnings: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class TrialReport(Record):
    """Report on a repository.

    ``entries`` are the models that no other model calls, ``requests`` an example line for each; ``notes`` are
    about all models. ``left`` are models that were not tried because of Ctrl-C.
    """

    folder: str
    models: tuple[TriedModel, ...] = ()
    entries: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    seconds: float = 0.0
