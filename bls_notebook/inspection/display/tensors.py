"""Display of tensors and responses: pictures, line, sound, histogram, texts, and the recorded request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.bundle import Display, render
from bls_notebook.display.html import Html, join, prose, tag
from bls_notebook.display.records.responses import response_head
from bls_notebook.display.tensor_parts import bars, line_html, media_html, number, sparks
from bls_notebook.display.units import count, ns, shape, size, some_ns
from bls_notebook.inspection.records import RequestSeen, ResponseView, TensorView
from bls_notebook.lifetimes.display.block_facts import kind_of
from bls_notebook.lifetimes.records import Life
from bls_notebook.profiling.records.spans import Span
from bls_notebook.records.repository import Figures, TextSeen
from bls_notebook.records.visible_text import visible

_SIDE, _ONE_OF_MANY = 300, 104  # pixels of a picture
_STYLES = "session seen figure"


def tensor_view_document(view: TensorView) -> doc.Document:
    """Describe a tensor, or a slice of one."""
    return doc.Document(list(_blocks(view)), styles=_STYLES)


def response_view_document(view: ResponseView) -> doc.Document:
    """Describe a response by its outputs."""
    blocks: list[doc.Block] = list(response_head(view.response))
    for each in view.tensors:
        blocks.append(doc.Box(list(_blocks(each)), "seen-tensor", gap=True))
    left = len(view.response.tensors) - len(view.tensors)
    if view.tensors and left and len(view.tensors) > 1:
        names = ", ".join(tensor.name for tensor in view.response.tensors[len(view.tensors) :])
        blocks.append(doc.Words(parts.quiet(f"and {count(left, 'more output')}: {names}")))
    if view.request is not None:
        blocks += request_blocks(view.request)
    return doc.Document(blocks, styles=f"{_STYLES} error" if view.response.error else _STYLES)


def _blocks(view: TensorView) -> Iterator[doc.Block]:
    tensor = view.tensor
    pieces = [parts.name(tensor.name or "array"), parts.datatype(tensor.datatype), parts.code(shape(tensor.shape))]
    pieces += [parts.device(tensor.device), parts.quiet(parts.memory(tensor.bytes))]
    if view.index:
        pieces.append(parts.quiet(f"slice {view.index} of {shape(view.whole)}"))
    yield doc.Line(pieces)
    if tensor.figures is not None:
        yield doc.Tiles(list(_tiles(tensor.figures, "F" in tensor.datatype)))
    yield from _shown(view)
    for text in view.texts:
        yield _text(text)
    left = _elements(tensor.shape) - len(view.texts)
    if view.texts and left:
        yield doc.Words(parts.quiet(f"and {count(left, 'more element')}"), indent="  ")
    if view.values:
        title = " ".join(view.notes) or "values"
        lines = view.values.split("\n")
        pre = doc.Both(lambda _: [f"  {visible(line)}".rstrip() for line in lines], tag("pre", prose(view.values)))
        few = len(lines) <= 3
        yield doc.Forms([doc.Line([title], indent="  "), pre], [doc.Fold(title, [pre], is_open=few)])
    elif view.notes:
        yield doc.Words(parts.quiet(*view.notes), indent="  ")


def _elements(dims: tuple[int, ...]) -> int:
    total = 1
    for n in dims:
        total *= n
    return total


def _tiles(figures: Figures, floats: bool) -> Iterator[tuple[str, str, str]]:
    yield "min", number(figures.least), "the least finite element"
    yield "max", number(figures.greatest), "the greatest finite element"
    yield "mean", number(figures.mean), "of the finite elements"
    if floats:
        yield "NaN", f"{figures.nans:,}", "elements that are not a number"
        yield "Inf", f"{figures.infinities:,}", "elements that are infinite"
    if figures.every > 1:
        yield "looked at", f"1 in {figures.every:,}", "elements, evenly taken: the tensor is large"


def _shown(view: TensorView) -> Iterator[doc.Block]:
    """Pictures beside the histogram, in HTML; a line of text for each."""
    tensor, said = view.tensor, []
    boxes: list[Html] = []
    if tensor.pictures:
        side = _SIDE if len(tensor.pictures) == 1 else _ONE_OF_MANY
        images = [media_html(each, side, tensor.name or "array") for each in tensor.pictures]
        told = tensor.pictures[0].said
        if any(images):
            boxes.append(_figure(tag("div", *images, cls="seen-row"), told))
            first = tensor.pictures[0]
            said.append(f"{count(len(tensor.pictures), 'picture')} of {first.height}×{first.width}: {told}")
    figures = tensor.figures
    if figures is not None and any(figures.histogram):
        counts = figures.histogram
        ends = number(figures.least), number(figures.greatest)
        axis = tag("div", tag("span", ends[0]), tag("span", ends[1]), cls="seen-axis")
        most = f"up to {count(max(counts), 'element')} a bin"
        boxes.append(_figure(join(bars(counts, _bins(figures)), axis), f"histogram, {most}"))
        said.append(f"{ends[0]} ▕{sparks(counts)}▏ {ends[1]}  histogram, {most}")
    if view.line:
        boxes.append(_figure(line_html(view.line), "as a line, from the first element to the last", "seen-wide"))
    if view.sound is not None:
        player = media_html(view.sound, 0, tensor.name or "array")
        if player:
            boxes.append(_figure(player, f"sound {view.sound.said}", "seen-wide"))
            said.append(f"a sound {view.sound.said}")
    if boxes:
        yield doc.Both(lambda _: [f"  {visible(line)}" for line in said], tag("div", *boxes, cls="seen-boxes"))


def _figure(inside: Html, words: str, cls: str = "") -> Html:
    return tag("div", inside, tag("div", words, cls="dim"), cls=f"seen-box {cls}".strip())


def _bins(figures: Figures) -> tuple[str, ...]:
    if figures.least is None or figures.greatest is None:
        return ()
    low, wide = (float(figures.least), (float(figures.greatest) - float(figures.least)) / len(figures.histogram))
    return tuple(
        f"{number(low + i * wide)} to {number(low + (i + 1) * wide)}: {n:,}" for i, n in enumerate(figures.histogram)
    )


def _text(text: TextSeen) -> doc.Block:
    facts = [f"[{', '.join(map(str, text.index))}]", text.kind, size(text.bytes) if text.bytes >= 0 else ""]
    head = doc.Line([parts.quiet(parts.dots(*facts))], indent="  ")
    shown = media_html(text.media, _SIDE, text.kind) if text.media is not None else Html()
    body = tag("pre", prose(text.text), cls="seen-text") if text.text else Html()
    lines = [f"    {visible(line)}" for line in text.text.split("\n")] if text.text else []
    return doc.Forms([head, doc.Both(lambda _: lines)], [head, doc.Both(lambda _: [], join(shown, body))])


def inspected_display(value: Any, *, width: int, live: bool) -> Display:
    """Draw a tensor or a response of a model's own by what an inspection finds in it."""
    from bls_notebook.inspection.inspection import inspect  # first needed here

    return render(inspect(value).record, width=width, live=live)


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
