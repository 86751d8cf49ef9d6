"""Displays of messages to the user, and of models' log lines as text."""

from __future__ import annotations

from bls_notebook.display import parts
from bls_notebook.display.document import Block, Document, Piece, Words
from bls_notebook.display.html import join, tag
from bls_notebook.records.messages import LogLine, MessageRecord
from bls_notebook.records.visible_text import visible

_MARKS = {
    "done": ("✓", "message-done"), "info": ("·", ""), "warning": ("!", "message-warning"),
    "error": ("✗", "message-wrong"),
}  # fmt: skip


def message_document(record: MessageRecord) -> Document:
    """Show a message after its mark, and its hint on a separate line."""
    mark, cls = _MARKS.get(record.kind, _MARKS["info"])
    sign = tag("span", mark, cls=f"message-mark {cls}".strip())
    words = tag("span", parts.coded(record.text).html, cls="message-words")
    time = parts.time(record.seconds)
    line = f"{record.text}  {time.text}" if time.text else record.text
    top = Piece(line, join(sign, words, time.html, by=" "))
    blocks: list[Block] = [Words(top, indent=f"{mark} ", hang="  ")]
    if record.hint:
        blocks.append(Words(parts.quiet(parts.coded(record.hint)), "message-more", indent="  "))
    return Document(blocks, styles="message")


_MOST = 4000  # characters of a message in the log; the rest is cut
_COLOURS = {"verbose": "2", "info": "34", "warning": "33;1", "error": "31;1"}  # ANSI codes of the levels
# Dim text uses "faint" (2), because bright black is unreadable on a dark page.
_BOLD, _DIM = "1", "2"


def log_line_text(line: LogLine, *, colour: bool = False, cell: str = "") -> str:
    """Return a log message as text; control characters in it are escaped.

    `colour` adds ANSI colors. `cell` names the cell of the message, if it is displayed elsewhere.
    """
    message = line.message
    if len(message) > _MOST:
        message = f"{message[:_MOST]} … {len(message) - _MOST:,} more characters"
    first, *rest = visible(message.rstrip("\n"), lines=True).expandtabs(4).split("\n")
    level = _painted(f"[{visible(line.level)}]", _COLOURS.get(line.level, ""), colour)
    where = "in the background" if line.background else f"by {cell}" if cell else ""
    origin = _painted(f" ({visible(where)})", _DIM, colour) if where else ""
    start = f"{level} {_painted(visible(line.model), _BOLD, colour)}{origin}: "
    return "".join(f"{text}\n" for text in (start + first, *(f"    {text}" for text in rest)))


def left_out_text(logger: str, *, colour: bool = False) -> str:
    """Return the line that replaces further messages: Python's logger `logger` still receives them."""
    return (
        _painted(f"… further messages of models are not shown here; Python's logger {logger!r} has all", _DIM, colour)
        + "\n"
    )


def _painted(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour and code else text
