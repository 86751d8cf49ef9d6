"""Displays of environments: one, with its packages, and a table of several."""

from __future__ import annotations

from collections.abc import Sequence

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.records.environments import EnvironmentRecord
from bls_notebook.records.remedy_words import remedy
from bls_notebook.records.units import size
from bls_notebook.records.visible_text import shortened

_NONE = remedy("no environments: make one with {environment}")


def environment_document(record: EnvironmentRecord) -> doc.Document:
    head = doc.Line([parts.name(record.name), parts.quiet(f"Python {record.python}"), parts.quiet(size(record.bytes))])
    used = f"used by {', '.join(record.users)}" if record.users else "used by no model that runs now"
    lines = (record.path, ", ".join(record.packages), used)
    return doc.Document([head, *(doc.Words(parts.quiet(line), indent="  ") for line in lines)])


def environments_document(records: Sequence[EnvironmentRecord]) -> doc.Document:
    if not records:
        return doc.Document([doc.Words(parts.coded(str(_NONE)))])
    columns = doc.columns("environment | Python | size:r | used by | requirements")
    rows = [
        doc.Row([
            parts.name(record.name), record.python, size(record.bytes), ", ".join(record.users) or "nothing now",
            parts.quiet("; ".join(shortened(each, 60) for each in record.requests)),
        ])
        for record in records
    ]  # fmt: skip
    total = parts.quiet(f"{size(sum(record.bytes for record in records))} in all")
    return doc.Document([doc.Table("Environments of models", columns, rows, indent="", last="wrap", most=28),
                         doc.Words(total, gap=True)])  # fmt: skip
