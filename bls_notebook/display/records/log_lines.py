"""A line that a model logged, as a terminal or a notebook's output stream shows it."""

from __future__ import annotations

from bls_notebook.records.seen import LogLine
from bls_notebook.records.visible import visible

MOST = 4000  # characters of a message
# How a terminal writes each level: as it is called, and in which colour.
_COLOURS = {"verbose": "2", "info": "34", "warning": "33;1", "error": "31;1"}
# Faint, and not bright black, which cannot be read on a dark page.
_BOLD, _DIM = "1", "2"


def log_line_text(line: LogLine, *, colour: bool = False, cell: str = "") -> str:
    """Write a line of a model's log: one line for each of the message; whatever that holds, it does nothing.

    ``colour`` says whether to use a terminal's colours, the words are the same without; ``cell`` whose line
    it is, where it does not stand under its own cell.
    """
    message = line.message
    if len(message) > MOST:
        message = f"{message[:MOST]} … {len(message) - MOST:,} more characters"
    first, *rest = visible(message.rstrip("\n"), lines=True).expandtabs(4).split("\n")
    level = _painted(f"[{visible(line.level)}]", _COLOURS.get(line.level, ""), colour)
    where = "in the background" if line.background else f"by {cell}" if cell else ""
    told = _painted(f" ({visible(where)})", _DIM, colour) if where else ""
    start = f"{level} {_painted(visible(line.model), _BOLD, colour)}{told}: "
    return "".join(f"{text}\n" for text in (start + first, *(f"    {text}" for text in rest)))


def left_out_text(count: int, logger: str, *, colour: bool = False) -> str:
    """Say that so many messages were not shown, and that the `logger` of that name has them."""
    messages = f"{count:,} more message" + "s" * (count != 1)
    text = f"… {messages} of models left out here; Python's logging has all: logger {logger!r}"
    return _painted(text, _DIM, colour) + "\n"


def _painted(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour and code else text
