"""Finds the magic that the cursor is in, and the words before it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bls_notebook.magics.parsing.words import UnfinishedError, split_words
from bls_notebook.magics.table import MAGICS

__all__ = ["MagicLine", "magic_line"]

_NAMES = {kind: "|".join(m.name for m in MAGICS if m.kind == kind) for kind in ("line", "cell")}
_LINE = re.compile(rf"^\s*(?:[\w.\[\]'\", ]+=\s*)?(?P<magic>%(?:{_NAMES['line']}))\s(?P<rest>.*)$")
_CELL = re.compile(rf"^(?P<magic>%%(?:{_NAMES['cell']}))\s(?P<rest>.*)$")


@dataclass(frozen=True)
class MagicLine:
    """A magic's line up to the cursor.

    Attributes
    ----------
    magic : str
        With its signs, such as ``%bls``.
    words : tuple of str
        Whole words before the cursor.
    fragment : str
        The word that the cursor is at the end of, as far as it is written.
    opened : bool
        Whether that word has begun with a quote that is not closed: it is Python, or a path.
    """

    magic: str
    words: tuple[str, ...]
    fragment: str
    opened: bool = False


def magic_line(text: str, first_line: bool) -> MagicLine | None:
    """Return the magic of a line that ends at the cursor; None where it is not one of ours.

    Inside an open bracket, or a quote that opens within a word, there is none either: that is Python.
    """
    found = _LINE.match(text) or (_CELL.match(text) if first_line else None)
    if found is None:
        return None
    rest, opened = found["rest"], ""
    try:
        split = split_words(rest)
    except UnfinishedError as error:
        rest, opened = rest[: error.start], rest[error.start :]
        if opened[0] not in "'\"":
            return None
        split = split_words(rest)
    words = [word.text for word in split]
    if opened:
        return MagicLine(found["magic"], tuple(words), opened, True)
    fragment = words.pop() if words and not text[-1].isspace() else ""
    return MagicLine(found["magic"], tuple(words), fragment)
