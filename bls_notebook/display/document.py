"""Documents: displays as pieces of lines and blocks of lines, without a form.

`as_text` and `as_html` render them. A plain `str` is accepted wherever a `Piece` is, and is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bls_notebook.display.html import Html, text

_NOTHING = Html()
MOST = 40  # terminal cells of a column that is not the last


@dataclass(frozen=True, slots=True)
class Piece:
    """Words in a line, and their markup.

    In a table ``cls`` and ``title`` are of the cell, and ``wide`` says how many columns it takes.
    """

    text: str
    html: Html
    cls: str = ""
    wide: int = 1
    title: str = ""


Said = str | Piece


def piece(said: Said) -> Piece:
    """Return what is said as a piece."""
    return said if isinstance(said, Piece) else Piece(said, text(said))


@dataclass(frozen=True, slots=True)
class Line:
    """One line that is never wrapped; ``by`` joins its pieces in text, after the ``mark``."""

    pieces: Sequence[Said]
    by: str = "  "
    mark: str = ""
    indent: str = ""


@dataclass(frozen=True, slots=True)
class Words:
    """A sentence, wrapped in text; every line but the first begins with ``hang``."""

    said: Said
    cls: str = "head"
    indent: str = ""
    hang: str | None = None
    gap: bool = False  # an empty line before it, in text


@dataclass(frozen=True, slots=True)
class Note:
    """A label, and what there is to say below it."""

    label: str
    said: Said
    html: Html = _NOTHING
    indent: str = "  "
    gap: bool = False


@dataclass(frozen=True, slots=True)
class Warnings:
    """A list of what needs attention."""

    values: Sequence[str]
    label: str = "warning"
    cls: str = "warnings"


@dataclass(frozen=True, slots=True)
class Tiles:
    """Figures side by side: label, value, and what it means or nothing."""

    figures: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: ``how`` is ``r`` for numbers, ``t`` for times, which keep their width in text."""

    head: Said = ""
    how: str = ""
    title: str = ""  # of each of its cells
    in_text: bool = True
    in_html: bool = True


def columns(heads: str) -> list[Column]:
    """Return columns by their heads, parted by ``|``; ``:r`` or ``:t`` behind one says how it is shown."""
    parted = (head.strip().partition(":") for head in heads.split("|"))
    return [Column(head, how) for head, _, how in parted]


@dataclass(frozen=True, slots=True)
class Row:
    """Cells from left to right; in text the last one of a row that is short reaches to the edge."""

    cells: Sequence[Said]
    cls: str = ""
    only: str = ""  # "text" or "html", if it is not in both


@dataclass(frozen=True, slots=True)
class Group:
    """Rows with a heading: in a column of its own beside them, or in a row above them, in HTML alone."""

    title: Said
    rows: Sequence[Row]
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings; the caption is for screen readers. The rest is of the text: see `text.table`."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row | Group]
    headed: bool = True  # whether the first cell of a row is its heading
    heads: bool = True  # whether the text has the headings
    indent: str = "  "
    last: str = "clip"
    most: int = MOST
    shared: int = 0  # so many wide columns share the line, instead of `most` each


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that HTML folds away under a title."""

    title: Said
    blocks: Sequence[Block]
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Box:
    """Blocks with a frame; indented in text, after the ``mark``."""

    blocks: Sequence[Block]
    cls: str
    mark: str = " "
    gap: bool = False


@dataclass(frozen=True, slots=True)
class Both:
    """What has nothing in common in its two forms: lines for a width, and markup."""

    lines: Callable[[int], Sequence[str]]
    html: Html = _NOTHING


@dataclass(frozen=True, slots=True)
class Forms:
    """Other blocks in text than in HTML."""

    text: Sequence[Block] = ()
    html: Sequence[Block] = ()


Block = Line | Words | Note | Warnings | Tiles | Table | Fold | Box | Both | Forms


@dataclass(frozen=True, slots=True)
class Document:
    """One display: its blocks from top to bottom, and the parts of the stylesheet that they need."""

    blocks: Sequence[Block]
    styles: str = ""
