"""What was recorded of a request: its spans, and the lives of its tensors."""

from __future__ import annotations

from collections.abc import Iterator

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.html import tag
from bls_notebook.display.units import count, ns, some_ns
from bls_notebook.inspection.records import RequestSeen
from bls_notebook.lifetimes.display.block_facts import kind_of
from bls_notebook.lifetimes.records import Life
from bls_notebook.profiling.records.spans import Span

_SPANS = doc.columns("model | span:r | instance | sent:t | queued:t | execute:t | in all:t | state")
_LIVES = doc.columns("tensor | size:r | type | device | made by | how | lived:t")
_OPEN = 12  # rows that are not folded away
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
        yield parts.opened(title, [doc.Table("Spans", _SPANS, rows)], len(rows) <= _OPEN)
    else:
        missing.append(_NOT["spans"])
    if seen.lives:
        title = f"memory: {count(len(seen.lives), 'block')} in the lifetimes of {seen.track}"
        rows = [_life(life, seen.begun) for life in seen.lives]
        yield parts.opened(title, [doc.Table("Lives", _LIVES, rows)], len(rows) <= _OPEN)
    elif not seen.track:
        missing.append(_NOT["lives"])
    if missing:
        yield doc.Words(parts.quiet("; ".join(missing)), indent="  ", gap=True)


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
        parts.code(kind_of(life)),
        parts.device(life.device), life.maker.model or "notebook", f"{life.how}{before}", lived,
    ])  # fmt: skip
