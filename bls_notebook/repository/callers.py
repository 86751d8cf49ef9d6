"""Warn about the callers of a model whose inputs or outputs changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bls_notebook.engine.core.server import Server
from bls_notebook.records.models import ModelRecord
from bls_notebook.records.regular_file import source_text
from bls_notebook.records.units import listed

from .loading.ensembles import members_of
from .source.code_analysis import called_models
from .source.definition_changes import changed_tensors


def caller_warnings(server: Server, old: ModelRecord | None, record: ModelRecord) -> tuple[str, ...]:
    """Return a warning that names the callers of a redefined model if its inputs or outputs changed."""
    changed = [] if old is None else changed_tensors(old, record)
    callers = sorted(_callers(server, record.name)) if changed else []
    if not callers:
        return ()
    return (f"{'; '.join(changed)}: adapt {listed(callers, 6)}, which {'call' if callers[1:] else 'calls'} this model",)


def _callers(server: Server, name: str) -> Iterator[str]:
    """Yield the models in service that have called a model, or whose model.py names it in a request."""
    for other in server.names():
        model = server.find(other)
        if model is not None and other != name:
            source = source_text(Path(model.directory, "model.py")) if model.spec.in_python else ""
            if name in {*model.calls, *members_of(model.spec.config), *called_models(source)}:
                yield other
