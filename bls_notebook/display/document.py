"""Documents: the content of displays, as blocks that contain pieces of text.

`as_text` and `as_html` render them. A plain `str` is accepted in place of a `Piece`, and is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TypeVar

from bls_notebook.display.html import Html, text

_Record = TypeVar("_Record")
_NOTHING = Html()
MOST = 40  # terminal cells of a column that is not the last


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a line as text and as markup; in a table, `cls` and `title` of the cell, and `wide`, its columns."""

    text: str
    html: Html
    cls: str = ""
    wide: int = 1
    title: str = ""


Said = str | Piece


def piece(said: Said) -> Piece:
    return said if isinstance(said, Piece) else Piece(said, text(said))


@dataclass(frozen=True, slots=True)
class Line:
    """One line without wrapping; in text, `mark` precedes it and `by` separates its pieces."""

    pieces: Sequence[Said]
    by: str = "  "
    mark: str = ""
    indent: str = ""


@dataclass(frozen=True, slots=True)
class Words:
    """A sentence; in text it is wrapped, and lines after the first begin with `hang`."""

    said: Said
    cls: str = "head"
    indent: str = ""
    hang: str | None = None
    gap: bool = False  # in text, an empty line before the sentence


@dataclass(frozen=True, slots=True)
class Note:
    """A label with a text."""

    label: str
    said: Said
    html: Html = _NOTHING
    indent: str = "  "
    gap: bool = False


@dataclass(frozen=True, slots=True)
class Warnings:
    """A list of warnings."""

    values: Sequence[str]
    label: str = "warning"
    cls: str = "warnings"


@dataclass(frozen=True, slots=True)
class Tiles:
    """Figures in a row: label, value, and an explanation or ""."""

    figures: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `how` is ``r`` for numbers, or ``t`` for times, whose column has a constant width in text."""

    head: Said = ""
    how: str = ""
    title: str = ""  # tooltip of its cells
    in_text: bool = True
    in_html: bool = True


def columns(heads: str) -> list[Column]:
    """Return columns from heads that are separated by ``|``; a suffix ``:r`` or ``:t`` is the column's `how`."""
    pairs = (head.strip().partition(":") for head in heads.split("|"))
    return [Column(head, how) for head, _, how in pairs]


@dataclass(frozen=True, slots=True)
class Row:
    """Cells from left to right; in text, the last cell of a row with fewer cells extends to the right edge."""

    cells: Sequence[Said]
    cls: str = ""
    only: str = ""  # "text" or "html" for a row in one form


@dataclass(frozen=True, slots=True)
class Group:
    """Rows with a title, which is in an extra column before them."""

    title: Said
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings; `caption` is for screen readers. The other fields affect the text: see `as_text.table`."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row | Group]
    headed: bool = True  # the first cell of a row is its heading
    heads: bool = True  # the text has the headings
    indent: str = "  "
    last: str = "clip"
    most: int = MOST
    shared: int = 0  # number of wide columns that share the line; replaces `most`


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that HTML folds under a title."""

    title: Said
    blocks: Sequence[Block]
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Box:
    """Blocks in a frame; in text, indented after a `mark`."""

    blocks: Sequence[Block]
    cls: str
    mark: str = " "
    gap: bool = False


@dataclass(frozen=True, slots=True)
class Both:
    """A block with separate forms: a function from the width to lines, and markup."""

    lines: Callable[[int], Sequence[str]]
    html: Html = _NOTHING


@dataclass(frozen=True, slots=True)
class Forms:
    """Different blocks in text and in HTML."""

    text: Sequence[Block] = ()
    html: Sequence[Block] = ()


Block = Line | Words | Note | Warnings | Tiles | Table | Fold | Box | Both | Forms


@dataclass(frozen=True, slots=True)
class Document:
    """One display: its blocks from top to bottom, and the names of the stylesheet's parts that they need."""

    blocks: Sequence[Block]
    styles: str = ""


def document(styles: str = "") -> Callable[[Callable[[_Record], Iterable[Block]]], Callable[[_Record], Document]]:
    """Turn a function that yields the blocks of a record into one that returns its document."""

    def decorate(blocks: Callable[[_Record], Iterable[Block]]) -> Callable[[_Record], Document]:
        return wraps(blocks)(lambda record: Document(list(blocks(record)), styles))

    return decorate
