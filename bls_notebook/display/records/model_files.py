"""Displays of a model's files: config.pbtxt with colors, and the lines that a redefinition changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from bls_notebook.display import as_text as text
from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.document import Both, Document, Forms, Line
from bls_notebook.display.html import Html, join, prose, tag
from bls_notebook.records.models import Change
from bls_notebook.records.visible_text import visible

_TOKEN = re.compile(
    r"""(?P<com>\#[^\n]*)
    |(?P<str>"[^"\\\n]*(?:\\.[^"\\\n]*)*"?|'[^'\\\n]*(?:\\.[^'\\\n]*)*'?)
    |(?P<key>[A-Za-z_]\w*(?=[ \t]*[:{\[]))
    |(?P<lit>\b[A-Z][A-Z0-9_]+\b|\btrue\b|\bfalse\b|-?\b\d[\w.]*)
    |\w+""",
    re.VERBOSE,
)


def config_document(name: str, pbtxt: str) -> Document:
    """Show a configuration under the name of its model, uncut, so that it can be copied."""
    named = Line([parts.name(name), parts.quiet("config.pbtxt")])
    heading = Forms([Line([f"config.pbtxt of {name}"], mark="#")], [named])
    return Document([heading, config_block(pbtxt)], styles="config")


def config_block(pbtxt: str) -> Both:
    """Show a configuration (or YAML) with colors; the stylesheet is ``config``."""
    shown = tag("pre", _coloured(pbtxt.rstrip().expandtabs(4)), cls="config-text")
    return Both(lambda _: [visible(pbtxt.rstrip(), lines=True)], shown)


def _coloured(pbtxt: str) -> Html:
    pieces: list[str] = []
    end = 0
    for match in _TOKEN.finditer(pbtxt):
        cls = f"config-{match.lastgroup}" if match.lastgroup else None
        pieces += [prose(pbtxt[end : match.start()]), tag("span", prose(match[0]), cls=cls) if cls else prose(match[0])]
        end = match.end()
    return join(*pieces, prose(pbtxt[end:]))


_IN_TEXT = 12  # lines of a change in text, which cannot fold
_CLASSES = {"+": "changes-came", "-": "changes-went", "…": "dim"}


def changes_blocks(changes: Sequence[Change]) -> Iterator[doc.Block]:
    """Yield changes under a summary line; nothing without changes."""
    if changes:
        counts = ", ".join(f"{change.file} +{change.added} −{change.removed}" for change in changes)
        title = f"changed since the last definition: {counts}"
        blocks = [change_block(change, _IN_TEXT) for change in changes]
        yield doc.Forms([doc.Words(title, indent="  "), *blocks], [doc.Fold(title, blocks)])


def change_block(change: Change, most: int) -> doc.Block:
    """Show a change; in text, at most `most` lines."""
    return doc.Both(lambda width: list(_text(change, width, most)), _html(change))


def _text(change: Change, width: int, most: int) -> Iterator[str]:
    for number, (sign, line) in zip(_numbers(change), change.lines[:most], strict=False):
        yield from text.wrap(f"{number}{sign} {visible(line)}", width, "    ", "      " + " " * len(number))
    if len(change.lines) > most:
        yield f"    … {len(change.lines) - most} more lines"


def _numbers(change: Change) -> list[str]:
    """Return the prefix of each line: its number, if the change has numbers."""
    if not change.numbers or len(change.numbers) != len(change.lines):
        return [""] * len(change.lines)
    width = len(str(max(change.numbers)))
    return [f"{number or '':>{width}} " for number in change.numbers]


def _html(change: Change) -> Html:
    # The newline is for readers without the stylesheet; with it, the line is a block, which ignores the newline.
    lines = (
        tag(
            "span",
            *([tag("span", number, cls="dim")] if number else []),
            f"{sign} {visible(line)}",
            Html("\n"),
            cls=_CLASSES.get(sign, ""),
        )
        for number, (sign, line) in zip(_numbers(change), change.lines, strict=True)
    )
    return tag("div", tag("span", change.file, cls="dim"), tag("pre", *lines, cls="changes-lines"))
