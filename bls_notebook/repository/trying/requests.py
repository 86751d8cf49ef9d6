"""The lines that ask the models of a repository which no other model calls."""

from __future__ import annotations

from collections.abc import Iterable

from bls_notebook.repository.repository import ModelRepository

from .example import request_line


def requests_to(repository: ModelRepository, names: Iterable[str]) -> tuple[str, ...]:
    """Return a line of ``%bls`` for each of these models, in step."""
    out = []
    for name in names:
        sequence = repository.config(name).HasField("sequence_batching")
        out.append(request_line(repository.record(name), sequence))
    return tuple(out)
