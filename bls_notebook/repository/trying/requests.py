"""The lines that ask the models of a repository which no other model calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bls_notebook.observe.records.repository import ModelRecord
from bls_notebook.repository.repository import ModelRepository

from .example import request_line


def requests_to(
    repository: ModelRepository, names: Iterable[str], files: Callable[[str], bool]
) -> tuple[str, ...]:
    """Return a line of ``%bls`` for each of these models, in step; `files` as for `request_line`."""
    out = []
    known = [record for record in repository.index() if record.state == "READY"]
    for name in names:
        sequence = _in_sequences(repository, name)
        record = repository.record(name)
        out.append(request_line(record, sequence, _other(record, known), files(name)))
    return tuple(out)


def _in_sequences(repository: ModelRepository, name: str) -> bool:
    """Whether a model, or a step of it, takes requests of sequences alone."""
    config = repository.config(name)
    steps = {step.model_name for step in config.ensemble_scheduling.step}
    return config.HasField("sequence_batching") or any(
        _in_sequences(repository, each) for each in steps if repository.ready(each)
    )


def _other(record: ModelRecord, known: Iterable[ModelRecord]) -> str:
    """The model that takes most of the inputs that a model has: what it calls, where it is told whom."""
    names = {spec.name for spec in record.inputs}
    shared = {each.name: len(names & {spec.name for spec in each.inputs}) for each in known}
    shared.pop(record.name, None)
    return max(shared, key=lambda name: (shared[name], name), default="")
