"""Many requests that stream: when the first and the last responses came, and a row for each stream."""

from __future__ import annotations

from collections.abc import Sequence

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.html import Html, text
from bls_notebook.display.records.errors import error_box
from bls_notebook.display.records.many import left_out, warned_of, with_gaps
from bls_notebook.display.text import clip
from bls_notebook.display.units import count, duration
from bls_notebook.records.measurements import quartiles
from bls_notebook.records.repository import StreamRecord
from bls_notebook.records.visible_text import first_line, spoken

from .statistics import LATENCY_STYLES, latency_blocks


def streams_document(records: Sequence[StreamRecord]) -> doc.Document:
    """Describe many streams: a summary, how long they took to begin and to end, a row for each."""
    if not records:
        return doc.Document([doc.Words(parts.quiet("no streams"))])
    errors = [record.error for record in records if record.error]
    firsts = [record.first for record in records if record.first is not None]
    lasts = [record.last for record in records if record.last is not None]
    facts = [
        f"version {records[0].version}" if records[0].version > 0 else "",
        count(len(records), "stream"),
        count(sum(record.responses for record in records), "response"),
        count(len(errors), "error") if errors else "",
        f"first after {duration(quartiles(firsts).median)} (median)" if firsts else "",
        f"last after {duration(quartiles(lasts).median)} (median)" if lasts else "",
    ]
    head = [parts.name(records[0].model), parts.quiet(parts.dots(*facts))]
    blocks: list[doc.Block] = [doc.Line(head, " · ", "✗" if errors else "✓")]
    figures = [*latency_blocks(firsts, "first response"), *latency_blocks(lasts, "last response")]
    table = _table(records)
    blocks += [*figures, doc.Fold(count(len(records), "stream"), [table], bool(errors))] if figures else [table]
    blocks.append(parts.stubs_told(name for record in records for name in record.stubs))
    blocks.append(doc.Warnings(warned_of(record.warnings for record in records)))
    if errors:
        blocks.append(error_box(errors[0], gap=True))
    return doc.Document(blocks, styles=f"{LATENCY_STYLES} error" if errors else LATENCY_STYLES)


def _table(records: Sequence[StreamRecord]) -> doc.Table:
    columns = [
        doc.Column("#", "r"), doc.Column(in_html=False), doc.Column("first", "t"), doc.Column("last", "t"),
        doc.Column("responses", "r"), doc.Column(),
    ]  # fmt: skip
    rows: list[doc.Row] = []
    for item in with_gaps(records, [i for i, record in enumerate(records) if record.error]):
        rows += left_out(item, 5, len(columns)) if isinstance(item, str) else [_row(item)]
    return doc.Table(f"Streams of {records[0].model}", columns, rows, headed=False, last="wrap")


def _row(record: StreamRecord) -> doc.Row:
    start: list[doc.Said] = [
        str(record.index),
        "✗" if record.error else "!" if record.warnings else "",
        parts.time(record.first),
        parts.time(record.last),
        f"{record.responses:,}",
    ]
    if record.error:
        said = first_line(spoken(record.error.message), 1000) or "no message"
        return doc.Row([*start, doc.Piece(said, Html(f"✗ {text(said)}"), "wide")], "bad")
    shown = clip(record.text, 2 * parts.LONGEST // 3)
    return doc.Row([*start, parts.values(shown) if shown else parts.NOTHING])
