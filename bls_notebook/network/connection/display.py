"""A connection to a server: whether it answers, and which of its models can be called from here."""

from __future__ import annotations

from collections.abc import Iterator

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.records.models import models_table
from bls_notebook.display.units import count

from .records import ConnectionRecord

_KINDS = {"CONNECTED": "ready", "LOST": "unavailable"}


def connection_document(record: ConnectionRecord) -> doc.Document:
    """Describe a connection."""
    return doc.Document(list(_blocks(record)))


def _blocks(record: ConnectionRecord) -> Iterator[doc.Block]:
    state = parts.stated(record.state, _KINDS.get(record.state, ""))
    facts = [record.server] if record.server else []
    if record.state != "DISCONNECTED":
        facts.append(count(len({model.name for model in record.models}), "model"))
    yield doc.Line([parts.name(record.address), state, parts.quiet(" · ".join(facts))])
    if record.state == "LOST":
        yield doc.Warnings([f"no answer: {record.reason}; its models are here again when it answers"])
    if record.models:
        yield models_table(f"Models at {record.address}", record.models)
        first = record.models[0]
        given = " ".join(f"{spec.name}=..." for spec in first.inputs)
        yield doc.Words(
            parts.dots(
                parts.coded(f"call one from a cell: `{f'%bls {first.name} {given}'.strip()}`"),
                parts.coded(f"from a model: `InferenceRequest(model_name='{first.name}', ...)`"),
            )
        )
    if record.names:
        names = ", ".join(f"{here} is {there}" for here, there in record.names)
        yield doc.Words(parts.quiet(f"called otherwise there: {names}"))
    yield doc.Warnings(record.notes)
