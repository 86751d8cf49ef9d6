"""The lines that ask the models of a repository which no other model calls."""

from __future__ import annotations

from collections.abc import Iterable

from bls_notebook.observe.records.repository import ModelRecord
from bls_notebook.repository.repository import ModelRepository

from .example import request_line


def requests_to(repository: ModelRepository, names: Iterable[str]) -> tuple[str, ...]:
    """Return a line of ``%bls`` for each of these models, in step."""
    out = []
    known = [record for record in repository.index() if record.state == "READY"]
    for name in names:
        sequence = repository.config(name).HasField("sequence_batching")
        record = repository.record(name)
        out.append(request_line(record, sequence, _other(record, known)))
    return tuple(out)


def _other(record: ModelRecord, known: Iterable[ModelRecord]) -> str:
    """The model that takes most of the inputs that a model has: what it calls, where it is told whom."""
    names = {spec.name for spec in record.inputs}
    shared = {each.name: len(names & {spec.name for spec in each.inputs}) for each in known}
    shared.pop(record.name, None)
    return max(shared, key=lambda name: (shared[name], name), default="")
