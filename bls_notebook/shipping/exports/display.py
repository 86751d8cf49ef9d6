"""What an export wrote: the models with their callees, what they import, and what to do with it."""

from __future__ import annotations

from collections.abc import Iterator

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.units import count, size

from .records import Exported, ExportedModel

_COLUMNS = doc.columns("model | backend | from | files:r | calls")


def exported_document(record: Exported) -> doc.Document:
    """Describe an export."""
    return doc.Document(list(_blocks(record)))


def _blocks(record: Exported) -> Iterator[doc.Block]:
    whole = size(sum(model.bytes for model in record.models))
    yield doc.Line([parts.name(record.place), parts.quiet(f"{count(len(record.models), 'model')} · {whole}")])
    rows = [doc.Row(_cells(model)) for model in record.models]
    yield doc.Table(f"Models exported to {record.place}", _COLUMNS, rows)
    facts = [f"requirements.txt: {', '.join(record.requirements)}"] if record.requirements else []
    facts += [f"at least {size(record.shm_bytes)} of /dev/shm on a server"] if record.shm_bytes else []
    if "prove.py" in record.files:
        facts.append("prove.py there proves the answers on a machine with a server")
    yield doc.Words(parts.quiet(" · ".join([*facts, "README.md there: how to serve, test and measure it"])))
    there = dict(record.elsewhere)
    absent = [
        f"{model.name} calls {name}, which is at {there[name]} and was left out: a server has to have both"
        if name in there
        else f"{model.name} calls {name}, which does not serve here and was left out: load it and export "
        "again, or have it on the server"
        for model in record.models
        for name in model.absent
    ]
    unknown = [
        f"{name} is imported and not installed here: add its package to requirements.txt" for name in record.unknown
    ]
    yield doc.Warnings((*absent, *unknown))


def _cells(model: ExportedModel) -> list[doc.Said]:
    came = "a cell" if model.source == "cell" else model.source
    backend = model.backend or "ensemble"
    return [parts.name(model.name), backend, came, str(model.files), parts.listed(model.calls)]
