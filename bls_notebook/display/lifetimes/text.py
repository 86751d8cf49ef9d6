"""A memory track as plain text: what was alive where, a bar for each block, who holds what is left.

The bars go from event to event, not by the clock: a text has few columns, and this way two runs of the same
cell look the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from bls_notebook.display import text
from bls_notebook.display.lifetimes.facts import (
    Alive,
    DeviceFacts,
    alive_kinds,
    device_facts,
    device_label,
    owner,
    sums_text,
)
from bls_notebook.display.lifetimes.lanes import Row, layout, profile
from bls_notebook.display.lifetimes.left_behind import left_behind
from bls_notebook.display.units import count, duration, shape, size
from bls_notebook.observe.records.lifetimes import Lifetimes

__all__ = ["HEADS", "cells", "chart_lines", "lifetimes_text", "summary"]

HEADS = ["tensor", "size", "type", "device", "made by", "held by"]
_ROWS, _ALIVE = 24, 12
_COLUMNS = 48
_GLYPHS = {"cpu": "▒", "gpu:0": "█", "gpu:1": "▓", "gpu:2": "▚", "gpu:3": "▞"}
_LEVELS = " ▁▂▃▄▅▆▇█"


def lifetimes_text(record: Lifetimes, *, width: int = 100) -> str:
    """Describe a memory track as plain text.

    Parameters
    ----------
    record : Lifetimes
    width : int
        Terminal cells in a line.

    Returns
    -------
    str
        A line for each device with its peak, a chart of lives, what is left and who holds it.
    """
    lines = [text.facts(*summary(record))]
    devices = [facts for facts in device_facts(record) if facts.blocks]
    heads = ["device", "peak", "capacity", "before", "left behind", "alive at the peak"]
    rows = [_device(facts) for facts in devices]
    lines += text.table(rows, heads=heads, right=" rrrr", width=width, last="wrap") if rows else []
    for warning in left_behind(record):
        lines += text.note("warning", warning, width)
    lines += ["", *chart_lines(record, width=width)] if record.lives else []
    left = alive_kinds(record)
    return "\n".join([*lines, "", "  alive at the end", *_alive(record, left, width)] if left else lines)


def summary(record: Lifetimes) -> list[str]:
    """Return the facts of the heading."""
    models = {life.maker.model for life in record.lives if life.maker.model}
    facts = [
        f"memory of {record.name}" if record.name else "memory",
        count(len(record.lives), "block") if record.lives else "nothing passed through a request",
        count(len(models), "model") if models else "",
        duration(record.wall / 1e9),
        f"{record.dropped:,} more did not fit into the record" if record.dropped else "",
    ]
    return [fact for fact in facts if fact]


def _device(facts: DeviceFacts) -> list[str]:
    left = size(facts.left) if facts.left_blocks else "nothing"
    of = size(facts.total) if facts.total else ""
    before = size(facts.used) if facts.used else ""
    return [facts.label, size(facts.peak), of, before, left, sums_text(facts.at_peak)]


def _alive(record: Lifetimes, left: list[Alive], width: int) -> list[str]:
    rows = [[*cells(record, kind)] for kind in left[:_ALIVE]]
    lines = text.table(rows, heads=HEADS, right=" r", width=width, most=28)
    more = left[_ALIVE:]
    total = sum(kind.bytes for kind in more)
    return [*lines, f"  and {sum(len(kind.lives) for kind in more):,} more, {size(total)}"] if more else lines


def cells(record: Lifetimes, kind: Alive) -> list[str]:
    """Return the cells of a row under `HEADS`."""
    life = kind.lives[0]
    what = f"{life.datatype} {shape(life.shape) if life.shape else ''}".strip()
    device = device_label(record, life.device)
    made_by = owner(life.maker)
    if life.maker.span and len(kind.lives) == 1:
        made_by += f", span {life.maker.span}"
    return [kind.label, size(kind.bytes), what, device, made_by, kind.held_by]


# -- the chart --------------------------------------------------------------------------------------


def chart_lines(record: Lifetimes, *, width: int = 100) -> list[str]:
    """Return a chart of lives, a bar for each block, as lines of text."""
    times = sorted(
        {life.born for life in record.lives} | {life.died for life in record.lives if life.died >= 0}
    )
    columns = min(len(times), _COLUMNS)

    def column(ns: int) -> int:
        return bisect_left(times, ns) * columns // len(times)

    rows: list[list[str]] = []
    for group in layout(record, _ROWS):
        for number, row in enumerate(group.rows):
            model = "" if number else group.label
            bars = (_band if row.folded else _bars)(row, columns, column)
            many = f" ×{len(row.lives):,}" if row.folded else ""
            most = size(max(life.bytes for life in row.lives))
            rows.append([model, row.label + many if row.first else "", most, row.device, bars])
    used = list(dict.fromkeys(row[3] for row in rows))
    legend = [f"{_glyph(device)} {device_label(record, device)}" for device in used if device]
    stays = "▶ alive at the end" if any(life.died < 0 for life in record.lives) else ""
    heading = text.facts("lives, from event to event (not to scale)", *legend, stays)
    return [f"  {heading}", *text.table(rows, right="  r", width=max(width, columns + 56), most=22)]


def _glyph(device: str) -> str:
    return _GLYPHS.get(device.partition(" ")[0], "▒")


def _bars(row: Row, columns: int, column: Callable[[int], int]) -> str:
    cells = [" "] * (columns + 1)
    for life in row.lives:
        start = column(life.born)
        stop = columns if life.died < 0 else max(column(life.died), start + 1)
        cells[start:stop] = _glyph(row.device) * (stop - start)
        if life.died < 0:
            cells[columns] = "▶"
    return "".join(cells).rstrip()


def _band(row: Row, columns: int, column: Callable[[int], int]) -> str:
    """Draw many blocks as one line of bytes: the most in each column."""
    steps = profile(row.lives)
    highest = [0] * columns
    now, at = 0, 0
    for ns, bytes_ in steps:
        start = column(ns)
        for i in range(at, start + 1):
            highest[i] = max(highest[i], now)
        now, at = bytes_, start
        highest[start] = max(highest[start], now)
    for i in range(at + 1, columns):
        highest[i] = now
    most = max(highest) or 1
    cells = "".join(_LEVELS[-(-bytes_ * (len(_LEVELS) - 1) // most)] for bytes_ in highest)
    return (cells + ("▶" if any(life.died < 0 for life in row.lives) else "")).rstrip()
