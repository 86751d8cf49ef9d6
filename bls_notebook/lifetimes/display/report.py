"""Lifetimes as a report: figures, leaks, the lifetime chart and the flame graph."""

from __future__ import annotations

from typing import Any

from bls_notebook.display import covered, join, parts, picture_html, tag
from bls_notebook.display import document as doc
from bls_notebook.lifetimes.records import Lifetimes, is_left_behind
from bls_notebook.records import count, duration, size

from . import block_facts
from .flame_graph import flame_lines, flame_svg, flames
from .lifetime_chart import chart_lines, lifetimes_svg

_MANY = 3  # the fewest blocks that a verdict is about
_TEXT, _WHOLE, _MOST = 12, 12, 200  # rows of living blocks: in text, unfolded in HTML, and at most in HTML


def lifetimes_document(record: Lifetimes, *, widget: Any = None) -> doc.Document:
    """Describe lifetimes; a `widget` covers the lifetime chart while a kernel is running."""
    first, *facts = summary(record)
    top = doc.Line([doc.Piece(first, tag("b", first)), parts.quiet(parts.dots(*facts))], by=" · ")
    devices = _devices(record)
    said = zip(verdict(record), ("session-verdict", "session-advice"), strict=True)
    words = [doc.Words(parts.coded(sentence), style, "  ") for sentence, style in said if sentence]
    warnings = doc.Warnings([*block_facts.left_behind(record), *block_facts.outside_of_tensors(record)])
    picture: list[doc.Block] = [chart_block(record, widget=widget, gap=True)]
    peaks = flame_svg(record)
    if peaks:
        lines = doc.Both(lambda width: ["", *flame_lines(record, width=width)], picture_html(peaks, flame_alt(record)))
        picture.append(doc.Forms([lines], [doc.Fold("the peak by line of code", [lines], True)]))
    shown = picture if record.lives else []
    order = doc.Forms([*devices, warnings, *shown], [warnings, *shown, *devices])
    styles = "session figure" if words else "figure"
    return doc.Document([top, *words, order, *_alive(record)], styles=styles)


def chart_block(record: Lifetimes, *, widget: Any = None, gap: bool = False) -> doc.Both:
    """Draw the lifetime chart, for a document with the style ``figure``.

    A ``widget`` covers the picture; with a ``gap`` the text has an empty line above.
    """
    picture = picture_html(lifetimes_svg(record), figure_alt(record))
    picture = picture if widget is None else covered(picture, widget)
    return doc.Both(lambda width: [""] * gap + chart_lines(record, width=width), picture)


def summary(record: Lifetimes) -> list[str]:
    models = {life.maker.model for life in record.lives if life.maker.model}
    facts = [
        f"memory of {record.name}" if record.name else "memory",
        count(len(record.lives), "block") if record.lives else "nothing passed through a request",
        count(len(models), "model") if models else "",
        duration(record.wall / 1e9),
        f"{record.dropped:,} more beyond the limit" if record.dropped else "",
    ]
    return [fact for fact in facts if fact]


def verdict(record: Lifetimes) -> tuple[str, str]:
    """Return a sentence on many blocks of one name that make up the largest peak, and advice; empty without them.

    One execution got all of them, each from another request. For blocks that are left behind, `left_behind` warns.
    """
    facts = max(block_facts.device_facts(record), key=lambda each: each.peak, default=None)
    if facts is None or not facts.at_peak or 2 * facts.at_peak[0].bytes <= facts.peak:
        return "", ""
    group = facts.at_peak[0]
    takers = [{stay.at for stay in life.stays if stay.role == "output" and stay.at.request} for life in group.lives]
    taker = next(iter(set.intersection(*takers)), None)
    several = len({life.maker.request for life in group.lives}) == len(group.lives) >= _MANY
    if taker is None or not several or any(map(is_left_behind, group.lives)):
        return "", ""
    name, maker = block_facts.name_of(group.lives[0]), group.lives[0].maker.model
    made = sum(block_facts.name_of(life) == name and life.maker.model == maker for life in record.lives)
    of = f"all {made}" if made == len(group.lives) else f"{len(group.lives)} of {made}"
    less = size(group.bytes - group.lives[0].bytes)
    return (
        f"At the peak of {facts.label}, {of} tensors `{name}` of `{maker}` were alive at the same time: "
        f"{size(group.bytes)} of {size(facts.peak)}. One execute of `{taker.model}` got them all."
    ), (
        f"Perhaps `{taker.model}` keeps each until it has the last, and more are alive at the same time than "
        f"necessary. If so, use and drop each before the next call of `{maker}`: up to {less} less."
    )


def figure_alt(record: Lifetimes) -> str:
    """Describe the lifetime chart in words."""
    said = [
        f"{each.label}: peak {size(each.peak)}, {block_facts.sums_text(each.at_peak)}; {size(each.left)} left behind"
        for each in block_facts.device_facts(record)
        if each.blocks
    ]
    return f"Lifetimes of {count(len(record.lives), 'block')} of memory. {'. '.join(said)}."


def flame_alt(record: Lifetimes) -> str:
    """Describe the flame graph in words."""
    return " ".join(
        f"{flame.title}: "
        + ", ".join(
            f"{each.model or 'notebook'} {block_facts.line_text(each.line) or each.what} {size(each.bytes)}"
            for each in flame.lines[:6]
        )
        + "."
        for flame in flames(record)
    )


def _devices(record: Lifetimes) -> list[doc.Block]:
    used = [facts for facts in block_facts.device_facts(record) if facts.blocks]
    columns = [
        doc.Column("device"), doc.Column("peak", "r"), doc.Column("capacity", "r"),
        doc.Column("before", "r", in_html=any(facts.used for facts in used)),
        doc.Column("left behind", "r"), doc.Column("alive at the peak"),
    ]  # fmt: skip
    return [doc.Table("Devices", columns, list(map(_device, used)), last="wrap")] if used else []


def _device(facts: block_facts.DeviceFacts) -> doc.Row:
    left = join(parts.memory(facts.left).html, parts.quiet(f"in {count(facts.left_blocks, 'block')}").html, by=" ")
    largest = parts.quiet(block_facts.sums_text(facts.at_peak, 4)).html
    return doc.Row([
        parts.device(facts.label),
        parts.memory(facts.peak),
        parts.known(facts.total or -1),
        parts.memory(facts.used) if facts.used else doc.Piece("", parts.memory(0).html),
        doc.Piece(size(facts.left), left) if facts.left_blocks else parts.quiet("nothing"),
        doc.Piece(block_facts.sums_text(facts.at_peak), largest, cls="wrap"),
    ])  # fmt: skip


def _alive(record: Lifetimes) -> list[doc.Block]:
    kinds = block_facts.alive_kinds(record)
    if not kinds:
        return []
    heads = ("tensor", "size", "type", "device", "made by", "line", "held by")
    columns = [doc.Column(head, "r" if head == "size" else "") for head in heads]
    rows = [_row(record, kind) for kind in kinds[:_MOST]]

    def rest(most: int) -> tuple[int, int]:
        return sum(len(kind.lives) for kind in kinds[most:]), sum(kind.bytes for kind in kinds[most:])

    blocks, total = rest(_TEXT)
    more = [f"  and {blocks:,} more, {size(total)}"] if blocks else []
    in_text, in_html = (
        doc.Table("Alive at the end", columns, rows[:most], most=28, last="wrap") for most in (_TEXT, _MOST)
    )
    text: list[doc.Block] = [doc.Both(lambda _: ["", "  alive at the end"]), in_text, doc.Both(lambda _: more)]
    left = rest(_MOST)[0]
    line: list[doc.Block] = [doc.Line([parts.quiet(f"and {left:,} more")])] if left else []
    title = f"alive at the end: {count(rest(0)[0], 'block')}"
    return [doc.Forms(text, [doc.Fold(title, [in_html, *line], len(kinds) <= _WHOLE)])]


def _row(record: Lifetimes, kind: block_facts.BlockGroup) -> doc.Row:
    life = kind.lives[0]
    span = f", span {life.maker.span}" if life.maker.span and len(kind.lives) == 1 else ""
    lines = dict.fromkeys(filter(None, (block_facts.line_text(life.line) for life in kind.lives)))
    return doc.Row([
        parts.name(kind.label),
        parts.memory(kind.bytes),
        parts.code(block_facts.kind_of(life)),
        parts.device(block_facts.device_label(record, life.device)),
        block_facts.owner(life.maker) + span,
        parts.code(", ".join(lines)),
        parts.code(kind.held_by),
    ])  # fmt: skip
