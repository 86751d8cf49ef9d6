"""Where in Python code a cursor is: in which calls and brackets, at which argument, inside a string or not.

The code is being written, so nothing of it need parse: it is read token by token up to the cursor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?P<string>(?P<prefix>[A-Za-z]{0,2})(?P<quote>\"{3}|'{3}|"|'))
    |(?P<name>[^\W\d]\w*)
    |(?P<space>[^\S\n]+|\\\n)
    |(?P<mark>==|[<>!:]=|->|\d[\w.]*|.|\n)""",
    re.VERBOSE | re.DOTALL,
)
_CLOSING = {")": "(", "]": "[", "}": "{"}
_MAGIC = re.compile(r"^[^\S\n]*[%!][^\n]*", re.MULTILINE)


@dataclass
class Bracket:
    """A bracket that is open at the cursor.

    ``of`` is what stands right before it, such as ``repo.infer``; ``argument`` counts the commas in it;
    ``keyword`` is the name of the argument, where it is given by name; ``key`` text before the last colon.
    """

    opener: str
    of: str
    start: int
    argument: int = 0
    keyword: str = ""
    key: str | None = None

    @property
    def function(self) -> str:
        """The last part of the name of what is called."""
        return self.of.rpartition(".")[2] if self.opener == "(" else ""


@dataclass
class CodePosition:
    """Where the cursor is.

    ``brackets`` are those open, the outermost first; ``quote`` is of the string that it is in, or empty.
    ``fragment`` is what that string holds up to the cursor, else the name before it, dots and calls included.
    """

    brackets: list[Bracket] = field(default_factory=list)
    quote: str = ""
    fragment: str = ""


def without_magics(code: str) -> str:
    """Return code of the same length in which lines of magics and of the system's shell are blank."""
    return _MAGIC.sub(lambda found: " " * len(found[0]), code)


def place_of(code: str) -> CodePosition:
    """Return where the end of the code is."""
    place = CodePosition()
    said, string = "", ""  # the expression that ends here, as far as it is names; the string before
    for kind, text, start, prefix in _tokens(code):
        inner = place.brackets[-1] if place.brackets else None
        if kind == "open":
            if "f" in prefix.lower() and "{" in text:
                return CodePosition()
            return CodePosition(place.brackets, code[start], text)
        if kind == "string":
            said, string = "", text
        elif kind == "name":
            said = said + text if said.endswith(".") else text
        elif text in "([{":
            place.brackets.append(Bracket(text, said, start))
            said = ""
        elif text in _CLOSING:
            closed = place.brackets.pop() if inner is not None and inner.opener == _CLOSING[text] else None
            said = f"{closed.of}{closed.opener}{text}" if closed is not None and closed.of else ""
        elif text == ".":
            said = f"{said}." if said else ""
        else:
            if inner is not None and text == ",":
                inner.argument, inner.keyword, inner.key = inner.argument + 1, "", None
            elif inner is not None and text == ":":
                inner.key = string
            elif inner is not None and text == "=" and inner.opener == "(" and said.isidentifier():
                inner.keyword = said
            if text != "\n" or inner is None:
                said = ""
            string = string if text == "\n" else ""
    place.fragment = said
    return place


def call_text(code: str, bracket: Bracket) -> str:
    """Return what a bracket holds, up to its end or that of the code."""
    depth = 0
    for kind, text, start, _ in _tokens(code[bracket.start :]):
        depth += (text in "([{") - (text in _CLOSING) if kind == "mark" else 0
        if depth == 0:
            return code[bracket.start + 1 : bracket.start + start]
    return code[bracket.start + 1 :]


def _tokens(code: str) -> Iterator[tuple[str, str, int, str]]:
    """Kind, text, place and prefix of each token; of strings what is in the quotes, ``open`` for the last."""
    at = 0
    while at < len(code):
        found = _TOKEN.match(code, at)
        assert found is not None  # it matches any character
        at = found.end()
        kind = found.lastgroup if found["string"] is None else "string"
        if kind == "string":
            end, closed = _end_of_string(code, at, found["quote"])
            yield "string" if closed else "open", code[at:end], found.start(), found["prefix"]
            at = end + len(found["quote"]) * (closed and code.startswith(found["quote"], end))
        elif kind in ("name", "mark"):
            yield kind, found[0], found.start(), ""


def _end_of_string(code: str, at: int, quote: str) -> tuple[int, bool]:
    """Where the text of a string ends, and whether that is before the code does."""
    while at < len(code):
        if code[at] == "\\":
            at += 2
        elif code.startswith(quote, at) or (len(quote) == 1 and code[at] == "\n"):
            return at, True
        else:
            at += 1
    return len(code), False
