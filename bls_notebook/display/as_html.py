"""A document as HTML, with its stylesheet.

Styles are global to a page: the rules of one display apply to all others too. Therefore every display has the same
common rules in the same order; the classes of a part begin with its name, so no two parts share a class; and the rules
of parts have a higher specificity than the common ones, whichever comes last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from bls_notebook.display import document as doc

from .html import Html, join, prose, tag
from .widgets import widget_file


def document_html(document: doc.Document) -> Html:
    """Write a document as one ``div`` with its stylesheet."""
    return output(*_blocks(document.blocks), styles=document.styles)


def output(*children: str, styles: str = "") -> Html:
    """Wrap one display with its stylesheet; the classes stop notebooks from typesetting dollar signs as formulas."""
    style = Html(f"<style>{stylesheet(*styles.split())}</style>")
    return tag("div", style, *children, **{"class": "bls-out mathjax_ignore tex2jax_ignore"})


def _blocks(blocks: Sequence[doc.Block]) -> Iterator[Html]:
    return map(_block, blocks)


def _line(*said: doc.Said, cls: str = "head") -> Html:
    """Return one line, with spaces between its pieces for readers without the stylesheet."""
    return tag("div", join(*(doc.piece(part).html for part in said), by=" "), cls=cls)


def _block(block: doc.Block) -> Html:
    match block:
        case doc.Line():
            return _line(*block.pieces)
        case doc.Words():
            return _line(block.said, cls=block.cls)
        case doc.Note():
            return block.html
        case doc.Warnings():
            items = (tag("li", tag("b", block.label), Html(" "), prose(value)) for value in block.values)
            return tag("ul", *items, cls=block.cls) if block.values else Html()
        case doc.Tiles():
            dot = tag("span", " · ", cls="session-dot")  # for readers without the stylesheet, which hides it
            return tag("div", join(*(_tile(*figure) for figure in block.figures), by=dot), cls="session-tiles")
        case doc.Table():
            return _table(block)
        case doc.Fold():
            shown = tag("summary", doc.piece(block.title).html)
            return tag("details", shown, *_blocks(block.blocks), open="" if block.is_open else None)
        case doc.Forms():
            return join(*_blocks(block.html))
        case doc.Box():
            return tag("div", *_blocks(block.blocks), cls=block.cls)
        case doc.Both():
            return block.html


def _tile(label: str, value: str, meaning: str) -> Html:
    # The space is for notebooks that are not trusted, which have no stylesheet.
    parts = (tag("span", label, cls="dim"), Html(" "), tag("b", value))
    return tag("span", *parts, cls="session-tile", title=meaning or None)


def _table(block: doc.Table) -> Html:
    """Return an accessible table in a box with its own horizontal scroll bar."""
    columns = [column for column in block.columns if column.in_html]
    grouped = any(isinstance(row, doc.Group) for row in block.rows)
    heads = [tag("th", "", scope="col")] if grouped else []
    heads += (tag("th", doc.piece(c.head).html, cls=_kind(c), scope="col") for c in columns)
    top = tag("thead", tag("tr", *heads)) if any(doc.piece(c.head).text for c in columns) else Html()
    rows = (_row(row, block) if isinstance(row, doc.Row) else _group(row, block) for row in block.rows)
    body = join(*rows) if grouped else tag("tbody", *rows)
    inner = tag("table", tag("caption", block.caption), top, body, cls="groups" if grouped else "")
    return tag("div", inner, cls="scroll")


def _kind(column: doc.Column) -> str:
    return "num" if column.how else ""


def _group(group: doc.Group, block: doc.Table) -> Html:
    first = tag("th", doc.piece(group.title).html, scope="rowgroup", rowspan=len(group.rows))
    return tag("tbody", *(_row(row, block, (first,) if i == 0 else ()) for i, row in enumerate(group.rows)))


def _row(row: doc.Row, block: doc.Table, first: Sequence[Html] = ()) -> Html:
    if row.only == "text":
        return Html()
    cells, at = list(first), 0
    for number, cell in enumerate(map(doc.piece, row.cells)):
        columns = [column for column in block.columns[at : at + cell.wide] if column.in_html]
        at += cell.wide
        if not columns:
            continue
        kind = cell.cls if cell.wide > 1 else cell.cls or _kind(columns[0])
        how = {"scope": "row"} if block.headed and number == 0 else {}
        how |= {"title": cell.title or columns[0].title} if cell.title or columns[0].title else {}
        how |= {"colspan": str(len(columns))} if cell.wide > 1 else {}
        cells.append(tag("th" if "scope" in how else "td", cell.html, cls=kind, **how))
    return tag("tr", *cells, cls=row.cls)


# Three classes, because JupyterLab's rule for code in outputs has two classes and two elements.
_SCOPE = ".bls-out.bls-out.bls-out"
_PART = f"{_SCOPE}.bls-out"
COMMON = ("base", "table")  # parts of every display

# Marks of a dark page in JupyterLab, VS Code and Colab.
_DARK = ("[data-jp-theme-light=false]", ".vscode-dark", "html[theme=dark]")


@cache
def parts() -> dict[str, str]:
    _, *pieces = re.split(r"/\* part: (\w+) \*/", widget_file("display.css").read_text(encoding="utf-8"))
    return dict(zip(pieces[::2], pieces[1::2], strict=True))


@cache
def stylesheet(*names: str) -> str:
    """Return the common rules, then the rules of the named parts."""
    common = (_scoped(parts()[name], _SCOPE) for name in COMMON)
    return "".join([*common, *(_scoped(parts()[name], _PART) for name in names)])


def _scoped(sheet: str, scope: str) -> str:
    rules = [rule for rule in sheet.replace("\n", "").split("}") if rule]
    return "".join(f"{_selectors(rule.split('{')[0], scope)}{{{rule.split('{', 1)[1]}}}" for rule in rules)


def _selectors(selectors: str, scope: str) -> str:
    if selectors.startswith("&dark "):
        return f"{scope}:is({','.join(f'{dark} *' for dark in _DARK)}) {selectors[6:]}".rstrip()
    return ",".join(f"{scope} {selector}" if selector else scope for selector in selectors.split(","))
