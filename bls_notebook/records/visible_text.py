"""Text from models and users for display: invisible and misleading characters as escapes, short messages."""

from __future__ import annotations

import re
import unicodedata

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Zero-width joiners are part of words in several scripts and reorder nothing.
_KEPT = frozenset("\u200c\u200d")
_TRACEBACK = re.compile(r"\n\nAt:(?:\n  .*\(\d+\): .*)+\n?")


def visible(text: str, *, lines: bool = False) -> str:
    r"""Replace control, bidirectional and other invisible characters by escapes such as ``\x1b`` and ``\u202e``.

    Lone surrogates are replaced too. With `lines`, newlines and tabs stay.
    """
    return text if text.isprintable() else "".join(_character(c, lines) for c in text)


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
    """Return an error's message without Triton's mark for a request without an ID."""
    return message.replace("[request id: <id_unknown>] ", "")


def without_traceback(message: str) -> str:
    """Return an error's message without the traceback that Triton appends."""
    return _TRACEBACK.sub("", message)


def encodable(text: str) -> str:
    """Return text that can be encoded as UTF-8: lone surrogates become escapes."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def first_line(text: str, most: int = 200) -> str:
    """Return the first line that is not blank, cut to `most` characters; "" if there is none."""
    return shortened(next((line for line in text.strip().splitlines() if line.strip()), ""), most)


def shortened(text: str, most: int) -> str:
    """Return text cut to `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
