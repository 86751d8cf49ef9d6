"""A tritonserver beside the notebook: where it listens, what it serves, and how to call it."""

from __future__ import annotations

from collections.abc import Iterator

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.html import join, prose, tag
from bls_notebook.display.units import count, duration
from bls_notebook.records.visible_text import visible

from .records import ServedModel, ServerRecord

_COLUMNS = doc.columns("model | version:r | backend | state | calls")
_KINDS = {"READY": "ready", "ENDED": "unavailable", "UNAVAILABLE": "unavailable"}


def served_document(record: ServerRecord) -> doc.Document:
    """Describe a server."""
    return doc.Document(list(_blocks(record)), styles="tried")


def _blocks(record: ServerRecord) -> Iterator[doc.Block]:
    up = record.state in ("READY", "NOT READY")
    named = f"tritonserver {record.version}".strip()
    facts = [count(len(record.models), "model")]
    facts += [f"started in {duration(record.seconds)}"] if up and record.seconds else []
    state = parts.stated(record.state, _KINDS.get(record.state, ""))
    yield doc.Line([parts.name(named), state, parts.quiet(" · ".join(facts))])
    yield doc.Warnings(record.notes)
    if up:
        addresses = (("HTTP", record.http), ("gRPC", record.grpc), ("metrics", record.metrics))
        columns = doc.columns(" | ")
        rows = [doc.Row([what, parts.code(where)]) for what, where in addresses]
        yield doc.Table("Where it listens, on this machine alone", columns, rows, heads=False)
    if record.state != "STOPPED":
        yield from _served(record, named, up)


def _served(record: ServerRecord, named: str, up: bool) -> Iterator[doc.Block]:
    yield doc.Table(f"Models on {named}", _COLUMNS, [doc.Row(_cells(model, up)) for model in record.models])
    if up and record.models:
        yield doc.Words("to call it from any program on this machine (pip install tritonclient[grpc]):")
        yield _client(record)
    yield doc.Words(parts.quiet(record.program))
    if record.log_file:
        yield doc.Words(parts.quiet(f"log: {record.log_file}"))
    if record.log:
        log = tag("pre", prose("\n".join(record.log)))
        ended = record.state == "ENDED"
        lines = [f"    {visible(line)}" for line in record.log] if ended else []
        yield doc.Fold("the last lines of its log", [doc.Both(lambda _: lines, log)], is_open=ended)


def _cells(model: ServedModel, up: bool) -> list[doc.Said]:
    versions = ", ".join(map(str, model.versions))
    state = parts.stated(model.state, _KINDS.get(model.state, "")) if up else parts.quiet("gone")
    if up and model.reason:
        words = f"{model.state} {model.reason}"
        state = doc.Piece(words, join(state.html, prose(model.reason), by=" "), cls="wrap")
    return [parts.name(model.name), versions, model.backend or "ensemble", state, parts.listed(model.calls)]


def _client(record: ServerRecord) -> doc.Block:
    """One line of Python that a person can paste and run."""
    called = {name for model in record.models for name in model.calls}
    first = next((model for model in record.models if model.name not in called), record.models[0])
    return parts.pasted(
        "import tritonclient.grpc as triton; "
        f"client = triton.InferenceServerClient({record.grpc!r}); "
        f"print(client.get_model_metadata({first.name!r}))"
    )
