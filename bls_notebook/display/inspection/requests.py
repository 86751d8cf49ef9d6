"""What was recorded of a request: its spans, and the lives of its tensors."""

from __future__ import annotations

from collections.abc import Iterator

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.html import tag
from bls_notebook.display.units import count, ns, shape, some_ns
from bls_notebook.observe.records.inspection import RequestSeen
from bls_notebook.observe.records.lifetimes import Life
from bls_notebook.observe.records.profiles.spans import Span

_SPANS = [
    doc.Column("model"), doc.Column("span", "r"), doc.Column("instance"), doc.Column("sent", "t"),
    doc.Column("queued", "t"), doc.Column("execute", "t"), doc.Column("in all", "t"), doc.Column("state"),
]  # fmt: skip
_LIVES = [
    doc.Column("tensor"), doc.Column("size", "r"), doc.Column("type"), doc.Column("device"),
    doc.Column("made by"), doc.Column("how"), doc.Column("lived", "t"),
]  # fmt: skip
_NOT = {
    "spans": "its spans were not recorded: run the cell with %%blsprofile",
    "lives": "the lives of its tensors were not recorded: run the cell with %%blsmemory",
}


def request_blocks(seen: RequestSeen) -> Iterator[doc.Block]:
    """Give what was recorded of a request; where nothing was, how that is done."""
    missing = []
    if seen.spans:
        title = f"request: {count(len(seen.spans), 'span')} in the timeline of {seen.profile}"
        depths: dict[int, int] = {}
        rows = [_span(span, seen.spans[0].sent, depths) for span in seen.spans]
        yield _part(title, doc.Table("Spans", _SPANS, rows))
    else:
        missing.append(_NOT["spans"])
    if seen.lives:
        title = f"memory: {count(len(seen.lives), 'block')} in the lifetimes of {seen.track}"
        rows = [_life(life, seen.begun) for life in seen.lives]
        yield _part(title, doc.Table("Lives", _LIVES, rows))
    elif not seen.track:
        missing.append(_NOT["lives"])
    if missing:
        yield doc.Words(parts.quiet("; ".join(missing)), indent="  ", gap=True)


def _part(title: str, table: doc.Table) -> doc.Block:
    whole = len(table.rows) <= 12
    return doc.Forms([doc.Words(title, gap=True), table], [doc.Fold(title, [table], whole)])


def _span(span: Span, first: int, depths: dict[int, int]) -> doc.Row:
    depth = depths[span.id] = depths.get(span.parent, -1) + 1
    lead = "\u2007\u2007" * depth + ("└ " if depth else "")
    name = doc.Piece(
        f"{'  ' * depth}{'└ ' if depth else ''}{span.model}", tag("span", lead, parts.name(span.model).html)
    )
    state = span.state if not span.error else f"{span.state}: {span.error.splitlines()[0][:80]}"
    return doc.Row([
        name, str(span.id), span.instance, f"+{ns(span.sent - first)}", some_ns(span.queue),
        some_ns(span.compute_infer), ns(span.duration),
        doc.Piece(state, tag("span", state, cls="" if span.state == "ok" else "seen-bad")),
    ])  # fmt: skip


def _life(life: Life, begun: int) -> doc.Row:
    lived = "still alive" if life.died < 0 else ns(life.died - life.born)
    before = " (from before)" if life.born < begun else ""
    return doc.Row([
        parts.name(life.tensor or "block"), parts.memory(life.bytes),
        parts.code(f"{life.datatype} {shape(life.shape) if life.shape else ''}".strip()),
        parts.device(life.device), life.maker.model or "notebook", f"{life.how}{before}", lived,
    ])  # fmt: skip
