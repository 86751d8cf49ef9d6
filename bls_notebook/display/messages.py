"""One line for the person at the notebook: done, by the way, careful, or no."""

from __future__ import annotations

from bls_notebook.display import parts, text
from bls_notebook.display.html import Html, prose, tag
from bls_notebook.display.units import duration
from bls_notebook.observe.records.repository import MessageRecord

_MARKS = {
    "done": ("✓", "message-done"),
    "info": ("·", ""),
    "warning": ("!", "message-warning"),
    "error": ("✗", "message-wrong"),
}


def message_text(record: MessageRecord, *, width: int = 100) -> str:
    """Show one message as plain text.

    Parameters
    ----------
    record : MessageRecord
        The message.
    width : int
        Terminal cells in a line.

    Returns
    -------
    str
        The message after its mark, and the hint on a line of its own.
    """
    mark, _ = _mark(record)
    took = "" if record.seconds is None else f"  {duration(record.seconds)}"
    lines = text.wrap(record.text, width, f"{mark} ", "  ")
    lines[-1] += took
    return "\n".join(lines + (text.wrap(record.hint, width, "  ") if record.hint else []))


def message_html(record: MessageRecord) -> str:
    """Show one message as HTML.

    Parameters
    ----------
    record : MessageRecord
        The message.

    Returns
    -------
    str
        One ``div`` with its stylesheet.
    """
    mark, cls = _mark(record)
    sign = tag("span", mark, cls=f"message-mark {cls}".strip())
    top = parts.line(sign, tag("span", prose(record.text), cls="message-words"), parts.time(record.seconds))
    hint = parts.line(parts.quiet(prose(record.hint)), cls="message-more") if record.hint else Html()
    return parts.output(top, hint, styles="message")


def _mark(record: MessageRecord) -> tuple[str, str]:
    return _MARKS.get(record.kind, _MARKS["info"])
