"""A document as plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bls_notebook.display import document as doc
from bls_notebook.display import text
from bls_notebook.records.visible_text import visible


def document_text(document: doc.Document, width: int = 100) -> str:
    """Write a document as plain text, for lines of `width` terminal cells."""
    return "\n".join(_lines(document.blocks, width))


def _lines(blocks: Sequence[doc.Block], width: int) -> list[str]:
    return [line for block in blocks for line in _block(block, width)]


def _block(block: doc.Block, width: int) -> Sequence[str]:
    match block:
        case doc.Line():
            said = block.by.join(visible(words) for each in block.pieces if (words := doc.piece(each).text))
            return [f"{block.indent}{block.mark}{' ' if block.mark else ''}{said}"]
        case doc.Words():
            return [""] * block.gap + text.wrap(doc.piece(block.said).text, width, block.indent, block.hang)
        case doc.Note():
            return [""] * block.gap + text.note(block.label, doc.piece(block.said).text, width, block.indent)
        case doc.Warnings():
            return [line for value in block.values for line in text.note(block.label, value, width)]
        case doc.Tiles():
            return ["  " + text.facts(*(f"{label} {value}" for label, value, _ in block.figures))]
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
    beside = any(isinstance(row, doc.Group) and row.beside for row in block.rows)
    return text.table(
        list(_rows(block)),
        heads=[doc.piece(column.head).text for column in columns] if block.heads else (),
        right=" " * beside + "".join(column.how or " " for column in columns),
        width=width,
        indent=block.indent,
        last=block.last,
        most=max(16, (width - 24) // block.shared) if block.shared else block.most,
    )


def _rows(block: doc.Table) -> Iterator[list[str]]:
    for row in block.rows:
        if isinstance(row, doc.Group):
            for i, each in enumerate(row.rows):
                title = [doc.piece(row.title).text if i == 0 else ""] if row.beside else []
                yield [*title, *_cells(each, block.columns)]
        elif row.only != "html":
            yield _cells(row, block.columns)


def _cells(row: doc.Row, columns: Sequence[doc.Column]) -> list[str]:
    found, at = [], 0
    for cell in map(doc.piece, row.cells):
        if any(column.in_text for column in columns[at : at + cell.wide]):
            found.append(cell.text)
        at += cell.wide
    return found
