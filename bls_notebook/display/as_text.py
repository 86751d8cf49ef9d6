"""A document as plain text: aligned columns without boxes; widths are in terminal cells."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterator, Sequence

from bls_notebook.display import document as doc
from bls_notebook.records.units import TIME_WIDTH
from bls_notebook.records.visible_text import visible

GAP = 2
LEAST = 24  # least width of the last column, even in a narrow terminal


def cells(text: str) -> int:
    """Return the width of `text` in terminal cells."""
    return len(text) if text.isascii() else sum(_cell(c) for c in text)


def _cell(char: str) -> int:
    if unicodedata.combining(char) or char in "\u200c\u200d":
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clip(text: str, width: int) -> str:
    """Cut `text` to `width` cells; an ellipsis replaces the rest."""
    if cells(text) <= width:
        return text
    kept, used = [], 1
    for char in text:
        used += _cell(char)
        if used > width:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…"


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
    most: int = doc.MOST,
) -> list[str]:
    """Lay rows out in columns; return lines of at most `width` terminal cells without trailing spaces.

    A column that is empty in all rows is left out. The last cell of a row with fewer cells extends to the right edge.
    `right` has one character per column: ``r`` aligns right, ``t`` aligns right with the width of a time, others align
    left. A column has at most `most` cells. A last column that does not fit is cut, or wrapped if `last` is ``wrap``.
    """
    if not rows:
        return []
    count = max(map(len, rows))
    keep = [i for i in range(count) if any(row[i] for row in rows if i < len(row))]
    how = [right.ljust(count)[i] for i in keep]
    clean: list[list[str]] = []
    for values in [heads, *rows] if heads else rows:
        row = [visible(values[i]) for i in keep if i < len(values)]
        clean.append([*(clip(cell, most) for cell in row[:-1]), *row[-1:]])
    widths = [
        # The last cell of a short row extends to the right edge and does not widen its column.
        max(TIME_WIDTH * (kind == "t"), *(cells(row[i]) for row in clean if i < len(row) - (len(row) < len(how))), 0)
        for i, kind in enumerate(how)
    ]
    lines: list[str] = []
    for row in clean:
        lines += _aligned(row, widths, how, indent, width, last == "wrap")
    return lines


def _aligned(row: list[str], widths: list[int], how: list[str], indent: str, width: int, wrapped: bool) -> list[str]:
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


def document_text(document: doc.Document, width: int = 100) -> str:
    """Write a document as plain text in lines of `width` terminal cells."""
    return "\n".join(_lines(document.blocks, width))


def _lines(blocks: Sequence[doc.Block], width: int) -> list[str]:
    return [line for block in blocks for line in _block(block, width)]


def _block(block: doc.Block, width: int) -> Sequence[str]:
    match block:
        case doc.Line():
            line = block.by.join(visible(words) for piece in block.pieces if (words := doc.piece(piece).text))
            return [f"{block.indent}{block.mark}{' ' if block.mark else ''}{line}"]
        case doc.Words():
            return [""] * block.gap + wrap(doc.piece(block.said).text, width, block.indent, block.hang)
        case doc.Note():
            return [""] * block.gap + note(block.label, doc.piece(block.said).text, width, block.indent)
        case doc.Warnings():
            return [line for value in block.values for line in note(block.label, value, width)]
        case doc.Tiles():
            return ["  " + facts(*(f"{label} {value}" for label, value, _ in block.figures))]
        case doc.Table():
            return _table(block, width)
        case doc.Fold():
            return _lines(block.blocks, width)
        case doc.Forms():
            return _lines(block.text, width)
        case doc.Box():
            first, *rest = _lines(block.blocks, width - 2)
            return [""] * block.gap + [f"{block.mark} {first}", *(f"  {line}".rstrip() for line in rest)]
        case doc.Both():
            return block.lines(width)


def _table(block: doc.Table, width: int) -> list[str]:
    columns = [column for column in block.columns if column.in_text]
    grouped = any(isinstance(row, doc.Group) for row in block.rows)
    return table(
        list(_rows(block)),
        heads=[doc.piece(column.head).text for column in columns] if block.heads else (),
        right=" " * grouped + "".join(column.how or " " for column in columns),
        width=width,
        indent=block.indent,
        last=block.last,
        most=max(16, (width - 24) // block.shared) if block.shared else block.most,
    )


def _rows(block: doc.Table) -> Iterator[list[str]]:
    for row in block.rows:
        if isinstance(row, doc.Group):
            for i, member in enumerate(row.rows):
                yield [doc.piece(row.title).text if i == 0 else "", *_cells(member, block.columns)]
        elif row.only != "html":
            yield _cells(row, block.columns)


def _cells(row: doc.Row, columns: Sequence[doc.Column]) -> list[str]:
    texts, at = [], 0
    for cell in map(doc.piece, row.cells):
        if any(column.in_text for column in columns[at : at + cell.wide]):
            texts.append(cell.text)
        at += cell.wide
    return texts
