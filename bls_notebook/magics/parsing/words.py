"""Split the line of a magic into words, and evaluate the Python expressions in it.

Spaces inside quotes and brackets do not split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError

from bls_notebook.engine.exception_text import describe, traceback_of

_CLOSING = {"(": ")", "[": "]", "{": "}"}


class UnfinishedError(Exception):
    """A quote or bracket, the `opener`, that is left open; `start` is where the word that it is in begins."""

    def __init__(self, opener: str, start: int) -> None:
        super().__init__(f"{opener} is never closed")
        self.opener = opener
        self.start = start


@dataclass(frozen=True)
class Word:
    """A word of a line, as it is written, with where it begins and ends."""

    text: str
    start: int
    end: int

    @property
    def plain(self) -> str:
        """The word without the quotes around it, if it has any."""
        text = self.text
        if len(text) >= 2 and text[0] in "'\"" and text[-1] == text[0] and text[0] not in text[1:-1]:
            return text[1:-1]
        return text


def split_words(line: str, at: Callable[[str], bool] = str.isspace) -> list[Word]:
    """Return the words of a line, parted by characters of which `at` is true; raise UnfinishedError."""
    words: list[Word] = []
    start, position = -1, 0
    open_brackets: list[str] = []
    while position < len(line):
        char = line[position]
        if at(char) and not open_brackets:
            if start >= 0:
                words.append(Word(line[start:position], start, position))
            start, position = -1, position + 1
            continue
        start = position if start < 0 else start
        if char in "'\"":
            position = _after_quote(line, position, start)
            continue
        if char in _CLOSING:
            open_brackets.append(char)
        elif open_brackets and char == _CLOSING[open_brackets[-1]]:
            open_brackets.pop()
        position += 1
    if open_brackets:
        raise UnfinishedError(open_brackets[-1], start)
    if start >= 0:
        words.append(Word(line[start:], start, len(line)))
    return words


def _after_quote(line: str, position: int, start: int) -> int:
    quote = line[position : position + 3]
    if quote != line[position] * 3:
        quote = line[position]
    position += len(quote)
    while position < len(line):
        if line[position] == "\\":
            position += 2
        elif line.startswith(quote, position):
            return position + len(quote)
        else:
            position += 1
    raise UnfinishedError(quote, start)


Variables = dict[str, Any]


def evaluate(expression: str, variables: Variables, where: str) -> Any:
    """Return the value of an expression; `where` says what it is for, to begin the message of a UsageError
    with.

    What functions of the notebook raise inside it comes through as it is, with its traceback.
    """
    expression = expression.strip()
    try:
        code = compile(expression, f"<{where}>", "eval", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise UsageError(f"{where}: got {expression!r}, expected a Python expression: {reason}.") from None
    try:
        return eval(code, variables)
    except Exception as error:
        ours = traceback_of(error)
        if ours is not None and ours.tb_next is not None and ours.tb_next.tb_next is not None:
            raise
        raise UsageError(f"{where}: {expression}: {describe(error)}") from None


def expanded(word: str, variables: Mapping[str, Any]) -> str:
    """Return a word with ``$name`` and ``{expression}`` replaced by their values, as in other magics."""
    if "$" not in word and "{" not in word:
        return word
    from IPython.utils.text import DollarFormatter

    try:
        return DollarFormatter().vformat(word, args=[], kwargs=variables)
    except Exception:
        return word  # what is no expression was meant as it stands
