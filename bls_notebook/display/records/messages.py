"""One line for the person at the notebook: done, by the way, careful, or no."""

from __future__ import annotations

from bls_notebook.display import parts
from bls_notebook.display.document import Block, Document, Piece, Words
from bls_notebook.display.html import join, tag
from bls_notebook.records.repository import MessageRecord

_MARKS = {
    "done": ("✓", "message-done"), "info": ("·", ""), "warning": ("!", "message-warning"),
    "error": ("✗", "message-wrong"),
}  # fmt: skip


def message_document(record: MessageRecord) -> Document:
    """Show one message after its mark, and the hint on a line of its own."""
    mark, cls = _MARKS.get(record.kind, _MARKS["info"])
    sign = tag("span", mark, cls=f"message-mark {cls}".strip())
    words = tag("span", parts.coded(record.text).html, cls="message-words")
    time = parts.time(record.seconds)
    said = f"{record.text}  {time.text}" if time.text else record.text
    top = Piece(said, join(sign, words, time.html, by=" "))
    blocks: list[Block] = [Words(top, indent=f"{mark} ", hang="  ")]
    if record.hint:
        blocks.append(Words(parts.quiet(parts.coded(record.hint)), "message-more", indent="  "))
    return Document(blocks, styles="message")
