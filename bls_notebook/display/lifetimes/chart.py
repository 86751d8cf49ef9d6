"""The lives of a track as lines of text, a bar for each block.

The bars go from event to event, not by the clock: a text has few columns, and this way two runs of the same
cell look the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from bls_notebook.display import text
from bls_notebook.display.lifetimes.facts import device_label, profile
from bls_notebook.display.lifetimes.lanes import LifeRow, layout
from bls_notebook.display.units import size
from bls_notebook.observe.records.lifetimes import Lifetimes

__all__ = ["chart_lines"]

_ROWS = 24
_COLUMNS = 48
_GLYPHS = {"cpu": "▒", "gpu:0": "█", "gpu:1": "▓", "gpu:2": "▚", "gpu:3": "▞"}
_LEVELS = " ▁▂▃▄▅▆▇█"


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


def _bars(row: LifeRow, columns: int, column: Callable[[int], int]) -> str:
    cells = [" "] * (columns + 1)
    for life in row.lives:
        start = column(life.born)
        stop = columns if life.died < 0 else max(column(life.died), start + 1)
        cells[start:stop] = _glyph(row.device) * (stop - start)
        if life.died < 0:
            cells[columns] = "▶"
    return "".join(cells).rstrip()


def _band(row: LifeRow, columns: int, column: Callable[[int], int]) -> str:
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
    most = max(highest) or 1
    cells = "".join(_LEVELS[-(-bytes_ * (len(_LEVELS) - 1) // most)] for bytes_ in highest)
    return (cells + ("▶" if any(life.died < 0 for life in row.lives) else "")).rstrip()
