"""The lives of a track as lines of text, a bar for each block.

The bars go from event to event, not by the clock: a text has few columns, and this way two runs of the same
cell look the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from bls_notebook.display import text
from bls_notebook.display.units import size
from bls_notebook.lifetimes.records import Lifetimes

from .bars import row_line, row_most, tall
from .facts import device_label, profile
from .lanes import LifeRow, layout

_ROWS = 24
_COLUMNS = 48
_LEVELS = " ▁▂▃▄▅▆▇█"


def chart_lines(record: Lifetimes, *, width: int = 100) -> list[str]:
    """Return a chart of lives, a bar for each block, as lines of text."""
    times = sorted(
        {life.born for life in record.lives} | {life.died for life in record.lives if life.died >= 0}
    )
    columns = min(len(times), _COLUMNS)

    def column(ns: int) -> int:
        return bisect_left(times, ns) * columns // len(times)

    groups = layout(record, _ROWS)
    most = max((row_most(row) for group in groups for row in group.rows), default=1)
    rows: list[list[str]] = []
    for group in groups:
        for number, row in enumerate(group.rows):
            model = "" if number else group.label
            bars = (_band if row.folded else _bars)(row, columns, column, most)
            many = f" ×{len(row.lives):,}" if row.folded else ""
            largest = size(max(life.bytes for life in row.lives))
            line = row_line(row)
            name = row.label + many if row.first else ""
            rows.append([model, name, "" if line == row.label else line, largest, row.device, bars])
    names = dict.fromkeys(row.device for group in groups for row in group.rows)
    simulated = [device_label(record, name) for name in names if device_label(record, name) != name]
    stays = "▶ alive at the end" if any(life.died < 0 for life in record.lives) else ""
    how = f"lives, event by event (not to scale) · █ {size(most)} ▁ less"
    heading = text.facts(how, *simulated, stays)
    return [f"  {heading}", *text.table(rows, right="   r", width=max(width, columns + 68), most=22)]


def _glyph(bytes_: int, most: int) -> str:
    return _LEVELS[round(tall(bytes_, most) * (len(_LEVELS) - 1))] if bytes_ else " "


def _bars(row: LifeRow, columns: int, column: Callable[[int], int], most: int) -> str:
    cells = [" "] * (columns + 1)
    for life in row.lives:
        start = column(life.born)
        stop = columns if life.died < 0 else max(column(life.died), start + 1)
        cells[start:stop] = _glyph(max(life.bytes, 1), most) * (stop - start)
        if life.died < 0:
            cells[columns] = "▶"
    return "".join(cells).rstrip()


def _band(row: LifeRow, columns: int, column: Callable[[int], int], most: int) -> str:
    """Draw many blocks as one line of bytes: the most in each column."""
    steps = profile(row.lives)
    highest = [0] * columns
    now, at = 0, 0
    for ns, bytes_, _ in steps:
        start = column(ns)
        for i in range(at, start + 1):
            highest[i] = max(highest[i], now)
        now, at = bytes_, start
        highest[start] = max(highest[start], now)
    for i in range(at + 1, columns):
        highest[i] = now
    cells = "".join(_glyph(bytes_, most) for bytes_ in highest)
    return (cells + ("▶" if any(life.died < 0 for life in row.lives) else "")).rstrip()
