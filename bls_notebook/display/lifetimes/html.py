"""A memory track as HTML: what was left behind, the figure, tables of devices and of what is alive."""

from __future__ import annotations

from bls_notebook.display import parts
from bls_notebook.display.html import Html, join, row, table, tag
from bls_notebook.display.lifetimes.facts import (
    Alive,
    DeviceFacts,
    alive_kinds,
    device_facts,
    device_label,
    sums_text,
)
from bls_notebook.display.lifetimes.figure import lifetimes_svg
from bls_notebook.display.lifetimes.left_behind import left_behind
from bls_notebook.display.lifetimes.text import HEADS, cells, chart_lines, summary
from bls_notebook.display.svg import can_plot, figure_html
from bls_notebook.display.units import count, size
from bls_notebook.observe.records.lifetimes import Lifetimes

__all__ = ["figure_alt", "lifetimes_html"]

_WHOLE = 12  # rows of what is alive that are shown at once; the rest folds away
_MOST = 200
_NO_PLOT = "for a figure: pip install matplotlib"


def lifetimes_html(record: Lifetimes) -> Html:
    """Describe a memory track as HTML.

    Parameters
    ----------
    record : Lifetimes

    Returns
    -------
    Html
        One ``div`` with its stylesheet: warnings, the figure (a chart of text without matplotlib), tables.
    """
    first, *facts = summary(record)
    top = parts.line(tag("b", first), parts.quiet(parts.dots(*facts)))
    warnings = parts.warnings(tuple(left_behind(record)))
    figure = _figure(record) if record.lives else Html()
    return parts.output(top, warnings, figure, _devices(record), _alive(record), styles="figure")


def figure_alt(record: Lifetimes) -> str:
    """Say in words what the figure shows."""
    said = [
        f"{facts.label}: peak {size(facts.peak)}, {sums_text(facts.at_peak)}; {size(facts.left)} left behind"
        for facts in device_facts(record)
        if facts.blocks
    ]
    return f"Lifetimes of {count(len(record.lives), 'block')} of memory. {'. '.join(said)}."


def _figure(record: Lifetimes) -> Html:
    if can_plot():
        return figure_html(lifetimes_svg(record), figure_alt(record))
    lines = tag("pre", Html("\n").join(parts.quiet(line) for line in chart_lines(record)))
    return join(lines, parts.line(parts.quiet(_NO_PLOT)))


def _devices(record: Lifetimes) -> Html:
    used = [facts for facts in device_facts(record) if facts.blocks]
    if not used:
        return Html()
    heads = [
        ("device", ""),
        ("peak", "num"),
        ("capacity", "num"),
        *([("before", "num")] if any(facts.used for facts in used) else []),
        ("left behind", "num"),
        ("alive at the peak", ""),
    ]
    return table("Devices", heads, (_device(facts, len(heads) > 5) for facts in used))


def _device(facts: DeviceFacts, with_before: bool) -> Html:
    left = join(parts.nbytes(facts.left), parts.quiet(f"in {count(facts.left_blocks, 'block')}"), by=" ")
    return row([
        tag("th", parts.device(facts.label), scope="row"),
        tag("td", parts.nbytes(facts.peak), cls="num"),
        tag("td", parts.nbytes(facts.total) if facts.total else parts.quiet("not known"), cls="num"),
        tag("td", parts.nbytes(facts.used), cls="num") if with_before else Html(),
        tag("td", left if facts.left_blocks else parts.quiet("nothing"), cls="num"),
        tag("td", parts.quiet(sums_text(facts.at_peak, 4)), cls="wrap"),
    ])  # fmt: skip


def _alive(record: Lifetimes) -> Html:
    kinds = alive_kinds(record)
    if not kinds:
        return Html()
    heads = [(head, "num" if head == "size" else "") for head in HEADS]
    body = table("Alive at the end", heads, (_row(record, kind) for kind in kinds[:_MOST]))
    more = sum(len(kind.lives) for kind in kinds[_MOST:])
    rest = parts.line(parts.quiet(f"and {more:,} more")) if more else Html()
    title = f"alive at the end: {count(sum(len(kind.lives) for kind in kinds), 'block')}"
    is_open = "" if len(kinds) <= _WHOLE else None
    return tag("details", tag("summary", title), body, rest, open=is_open)


def _row(record: Lifetimes, kind: Alive) -> Html:
    name, _, what, _, made_by, held_by = cells(record, kind)
    return row([
        tag("th", parts.name(name), scope="row"),
        tag("td", parts.nbytes(kind.bytes), cls="num"),
        tag("td", tag("code", what)),
        tag("td", parts.device(device_label(record, kind.lives[0].device))),
        tag("td", made_by),
        tag("td", tag("code", held_by)),
    ])  # fmt: skip
