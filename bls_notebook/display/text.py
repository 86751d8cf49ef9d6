"""Plain text for terminals: aligned columns without boxes, measured in terminal cells."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence

from bls_notebook.display.units import TIME_WIDTH
from bls_notebook.records.visible_text import visible

GAP = 2
MOST = 40  # cells of a column that is not the last
LEAST = 24  # cells that the last column keeps, however narrow the terminal


def cells(text: str) -> int:
    """Return how many terminal cells `text` takes."""
    if text.isascii():
        return len(text)
    return sum(_cell(c) for c in text)


def _cell(char: str) -> int:
    if unicodedata.combining(char) or char in "\u200c\u200d":
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clip(text: str, width: int) -> str:
    """Cut `text` to `width` cells; an ellipsis stands for what is gone."""
    if cells(text) <= width:
        return text
    kept, used = [], 1
    for char in text:
        used += _cell(char)
        if used > width:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…"


def head(*parts: str) -> str:
    """Join the non-empty parts of a heading by two spaces."""
    return "  ".join(visible(part) for part in parts if part)


def facts(*parts: str) -> str:
    """Join the non-empty parts of a line of facts by middle dots."""
    return " · ".join(visible(part) for part in parts if part)


def wrap(text: str, width: int, indent: str = "", hang: str | None = None) -> list[str]:
    """Wrap text of several lines; every line but the first begins with `hang`."""
    hang = indent if hang is None else hang
    result: list[str] = []
    for line in visible(text, lines=True).expandtabs(4).split("\n"):
        first = hang if result else indent
        room = max(width, len(hang) + LEAST)
        folder = textwrap.TextWrapper(room, first, hang, replace_whitespace=False, break_on_hyphens=False)
        result += folder.wrap(line) or [""]
    return [line.rstrip() for line in result]


def note(label: str, text: str, width: int, indent: str = "  ") -> list[str]:
    """Wrap ``label: text`` with the text hanging under itself."""
    start = f"{indent}{label}: "
    return wrap(text, width, start, " " * len(start))


def table(
    rows: Sequence[Sequence[str]],
    *,
    heads: Sequence[str] = (),
    right: str = "",
    width: int = 100,
    indent: str = "  ",
    last: str = "clip",
    most: int = MOST,
) -> list[str]:
    """Lay rows out in columns: lines of so many terminal cells, without trailing spaces.

    A column that is empty in all rows vanishes. The last cell of a row that is shorter than the others
    reaches to the right edge. ``right`` has one character a column: ``r`` aligns it right, ``t`` too and
    keeps a time's width; others left. A column has at most so many cells; a last one that does not fit is
    cut, or wrapped where ``last`` is ``wrap``.
    """
    if not rows:
        return []
    count = max(map(len, rows))
    keep = [i for i in range(count) if any(row[i] for row in rows if i < len(row))]
    how = [right.ljust(count)[i] for i in keep]
    clean: list[list[str]] = []
    for given in [heads, *rows] if heads else rows:
        row = [visible(given[i]) for i in keep if i < len(given)]
        clean.append([*(clip(cell, most) for cell in row[:-1]), *row[-1:]])
    widths = [
        # The last cell of a short row reaches to the right edge: no column is as wide.
        max(TIME_WIDTH * (kind == "t"), *(cells(row[i]) for row in clean if i < len(row) - (len(row) < len(how))), 0)
        for i, kind in enumerate(how)
    ]
    lines: list[str] = []
    for row in clean:
        lines += _row(row, widths, how, indent, width, last == "wrap")
    return lines


def _row(row: list[str], widths: list[int], how: list[str], indent: str, width: int, wrapped: bool) -> list[str]:
    *before, final = row or [""]
    start = indent + "".join(_pad(cell, widths[i], how[i]) + " " * GAP for i, cell in enumerate(before))
    room = max(width - cells(start), LEAST)
    if cells(final) <= room:
        whole = bool(row) and len(row) == len(how)
        return [(start + (_pad(final, widths[-1], how[-1]) if whole else final)).rstrip()]
    if not wrapped:
        return [(start + clip(final, room)).rstrip()]
    first, *rest = textwrap.wrap(final, room) or [""]
    return [(start + first).rstrip(), *(" " * cells(start) + part for part in rest)]


def _pad(text: str, width: int, how: str) -> str:
    fill = " " * (width - cells(text))
    return fill + text if how in "rt" else text + fill
