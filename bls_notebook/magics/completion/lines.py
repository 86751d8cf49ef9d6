"""Finds the magic that the cursor is in, and the words before it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bls_notebook.magics.words import UnfinishedError, split_words

__all__ = ["MagicLine", "magic_line"]

_LINE = re.compile(r"^\s*(?:[\w.\[\]'\", ]+=\s*)?(?P<magic>%(?:bls|blsprofile|tritonrepo))\s(?P<rest>.*)$")
_CELL = re.compile(r"^(?P<magic>%%(?:bls|blsmemory|blsprofile|tritonmodel|tritonconfig))\s(?P<rest>.*)$")


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
    """

    magic: str
    words: tuple[str, ...]
    fragment: str


def magic_line(text: str, first_line: bool) -> MagicLine | None:
    """Return the magic of a line that ends at the cursor; None where it is not one of ours.

    Inside an open quote or bracket there is none either: that is Python.
    """
    found = _LINE.match(text) or (_CELL.match(text) if first_line else None)
    if found is None:
        return None
    try:
        words = [word.text for word in split_words(found["rest"])]
    except UnfinishedError:
        return None
    fragment = words.pop() if words and not text[-1].isspace() else ""
    return MagicLine(found["magic"], tuple(words), fragment)
