"""Makes invisible and misleading characters visible, so that a name is what it looks like."""

from __future__ import annotations

import re
import unicodedata

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Joiners belong to the spelling of several scripts and reorder nothing.
_KEPT = frozenset("\u200c\u200d")
_TRACEBACK = re.compile(r"\n\nAt:(?:\n  .*\(\d+\): .*)+\n?")


def visible(text: str, *, lines: bool = False) -> str:
    r"""Replace control, bidirectional and other invisible characters by backslash escapes.

    Lone surrogates included: ``\x1b`` or ``\u202e`` are spelled out. With `lines`, newlines and tabs stay.
    """
    if text.isprintable():
        return text
    return "".join(_character(c, lines) for c in text)


def _character(char: str, lines: bool) -> str:
    if lines and char in "\n\t":
        return char
    if char in _KEPT or unicodedata.category(char) not in _HIDDEN:
        return char
    if char in _SHORT:
        return _SHORT[char]
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def spoken(message: str) -> str:
    """Return an error's message without what Triton puts in it for a request that nobody named."""
    return message.replace("[request id: <id_unknown>] ", "")


def without_traceback(message: str) -> str:
    """Return an error's message without the lines of code that Triton lists in it."""
    return _TRACEBACK.sub("", message)


def encodable(text: str) -> str:
    """Return a text that has a UTF-8 form: lone surrogates become backslash escapes."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def first_line(text: str, most: int = 200) -> str:
    """Return the first line of a text that is not blank, cut to so many characters; empty where none is."""
    line = next((line for line in text.strip().splitlines() if line.strip()), "")
    return line if len(line) <= most else f"{line[: most - 1]}…"
