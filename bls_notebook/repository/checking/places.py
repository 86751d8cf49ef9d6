"""Where a field stands in the text of a config.pbtxt: protobuf's parser does not tell."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""(?P<skip>[\s,;]+|\#[^\n]*)
    |(?P<string>(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
    |(?P<open>[{<])|(?P<close>[}>])|(?P<colon>:)|(?P<list>[\[\]])
    |(?P<word>[^\s,;\#"'{}<>:\[\]]+)""",
    re.VERBOSE,
)


def line_of(text: str, field: str, value: str | None = None) -> int:
    """Return the line on which a field of a config.pbtxt is set first, 0 where it is not.

    A field is its names from the top, such as ``dynamic_batching.preferred_batch_size``; with a `value`,
    without quotes, it must have that.
    """
    lines = (line for path, line, found in _fields(text) if path == field and value in (None, found))
    return next(lines, 0)


def _fields(text: str) -> Iterator[tuple[str, int, str]]:
    """Each field that is set: its path, line and value; the value of a message is empty."""
    within: list[tuple[str, bool]] = []  # the messages that are open, and whether each is in a list
    named, at, listed, valued = "", 0, False, False
    line, end = 1, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", end, match.start())
        end = match.start()
        kind, word = match.lastgroup, match[0]
        if kind == "open":
            yield ".".join([*(name for name, _ in within), named]), line if listed else at, ""
            within.append((named, listed))
            named, listed, valued = "", False, False
        elif kind == "close":
            named, listed = within.pop() if within else ("", False)
            valued = listed
        elif kind == "colon":
            valued = True
        elif kind == "list":
            listed = valued = word == "["
        elif kind in ("word", "string") and not valued:
            named, at = word, line
        elif kind in ("word", "string"):
            yield ".".join([*(name for name, _ in within), named]), line, word.strip("\"'")
            valued = listed
