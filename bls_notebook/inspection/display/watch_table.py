"""A repository at one moment as a table: for terminals, and what a notebook keeps without a kernel."""

from __future__ import annotations

from time import localtime, strftime

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.html import join, prose, tag
from bls_notebook.display.records.devices import devices_document
from bls_notebook.display.units import count
from bls_notebook.inspection.watch_records import ModelNow, WatchRecord
from bls_notebook.records.devices import DeviceTable

_NO_WIDGET = "this was one moment; for a live panel: pip install anywidget, then restart the kernel"


def watch_document(record: WatchRecord, missing: bool = False) -> doc.Document:
    """List the models with what each does; `missing` says that anywidget is not installed."""
    at = strftime("%H:%M:%S", localtime(record.at))
    title = doc.Line([parts.name(record.place), parts.quiet("closed" if record.closed else f"at {at}")])
    used = [model for model in record.models if model.in_use]
    heads = "model", "state", "busy", "queue", "answered", "failed", "p50", "p99"
    columns = [doc.Column(head, how.strip()) for head, how in zip(heads, "  rrrrtt", strict=True)]
    blocks: list[doc.Block] = [title]
    if used:
        caption = f"What the models of {record.place} do"
        blocks.append(doc.Table(caption, columns, list(map(_row, used)), indent="", most=40))
    rest = len(record.models) - len(used)
    if rest or not used:
        words = count(rest, "model") + " not loaded" if rest else "no models"
        blocks.append(doc.Words(parts.quiet(words)))
    devices = devices_document(DeviceTable(record.devices))
    blocks += devices.blocks[:1] if record.devices else []
    if missing:
        blocks.append(doc.Words(parts.quiet(_NO_WIDGET), gap=True))
    return doc.Document(blocks, styles=devices.styles)


def _row(model: ModelNow) -> doc.Row:
    version = f" version {model.version}" if model.version != 1 else ""
    name = doc.Piece(
        model.name + version, tag("span", parts.name(model.name).html, parts.quiet(version).html)
    )
    if model.state != "READY":
        reason = doc.Piece(model.reason, tag("span", prose(model.reason), cls="dim"), cls="wrap", wide=6)
        return doc.Row([name, parts.state(model), reason])
    state, marks = parts.state(model), parts.stub(model.reason if model.reason.startswith("stub: ") else "")
    shown = [state, *marks]
    return doc.Row([
        name,
        doc.Piece(" ".join(each.text for each in shown), join(*(each.html for each in shown), by=" ")),
        f"{model.busy:,} of {model.instances:,}" if model.instances else "",
        f"{model.queue:,}",
        f"{model.answered:,}",
        f"{model.failed:,}",
        parts.time(None if model.p50 is None else model.p50 / 1e9),
        parts.time(None if model.p99 is None else model.p99 / 1e9),
    ])  # fmt: skip
