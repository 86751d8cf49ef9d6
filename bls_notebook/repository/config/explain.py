"""protobuf's parse errors in plain words, with what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_UNKNOWN_FIELD = re.compile(r'Message type "(?:inference\.)?([\w.]+)" has no field named "([^"]*)"')
_UNKNOWN_VALUE = re.compile(
    r'Enum type "(?:inference\.)?(?P<kind>[\w.]+)" has no value (?:named|with number) (?P<value>[^\s.]*)'
    r"|Invalid enum value (?P<other>.*?) for enum type (?:inference\.)?(?P<of>[\w.]+)"
)
_TWICE = re.compile(r'should not have multiple "([^"]+)" fields')
_ONEOF = re.compile(r'Field "([^"]+)" is specified along with field "([^"]+)"')
_ONEOF_JSON = re.compile(r'should not have multiple "([^"]+)" oneof fields')
# The fields of a whole ModelConfig are too many for one line.
_LISTED = 16
_PLACE = re.compile(r" at \"?(ModelConfig[\w.\[\]'\"-]*)")


def plain_reason(text: str, descriptor: Any) -> str:
    """Return a parse error's reason, protobuf's text without line and column, as one plain line.

    Names are suggested from the descriptor of the message that was being parsed.
    """
    text = _printable(" ".join(text.split()))
    place = _PLACE.search(text)
    where = ""
    if place:
        path = place[1].rstrip(".\"'").removeprefix("ModelConfig").lstrip(".")
        where = f" (at {path})" if path else ""
    if found := _UNKNOWN_FIELD.search(text):
        messages = [m for m in _messages(descriptor) if m.full_name == f"inference.{found[1]}"]
        known = [field.name for message in messages for field in message.fields]
        return f"there is no field '{found[2]}' in {found[1]}{where}{_meant(found[2], known)}"
    if found := _UNKNOWN_VALUE.search(text):
        kind, value = found["kind"] or found["of"], found["value"] or found["other"] or ""
        return f"'{value}' is no value of {kind}{where}{_meant(value, _values(descriptor, kind))}"
    if found := _TWICE.search(text):
        return f"'{found[1]}' is given twice; keep one of them"
    if found := _ONEOF.search(text):
        return f"'{found[1]}' and '{found[2]}' exclude each other; keep one of them"
    if found := _ONEOF_JSON.search(text):
        return f"more than one choice of {found[1]} is given; keep one of them"
    text = re.sub(r"^(?:Failed to parse [\w\[\]]+ field: )+", "", text)
    return _PLACE.sub("", text).rstrip(". ").replace("Couldn't parse", "cannot parse") + where


def shown_line(line: str) -> str:
    """Return the end of a message: the line that it is about, if that says anything."""
    stripped = line.strip()
    return f"; the line is: {_printable(stripped[:160])}" if stripped else ""


def _printable(text: str) -> str:
    """The text with whatever is not printable escaped, so that a message stays one line."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _meant(word: str, known: list[str]) -> str:
    # FP32 for TYPE_FP32, or a slip of the pen.
    close = [name for name in known if name.endswith(f"_{word.upper()}")]
    if not close:
        import difflib  # first needed here

        close = difflib.get_close_matches(word, known, n=1, cutoff=0.75)
    if len(close) == 1:
        return f"; did you mean '{close[0]}'?"
    return f"; expected one of: {', '.join(known)}" if 0 < len(known) <= _LISTED else "; leave it out"


def _messages(descriptor: Any) -> Iterator[Any]:
    pending, seen = [descriptor], {descriptor.full_name}
    while pending:
        message = pending.pop()
        yield message
        for field in message.fields:
            nested = field.message_type
            if nested is not None and nested.full_name not in seen:
                seen.add(nested.full_name)
                pending.append(nested)


def _values(descriptor: Any, name: str) -> list[str]:
    for message in _messages(descriptor):
        for field in message.fields:
            if field.enum_type is not None and field.enum_type.full_name == f"inference.{name}":
                return [value.name for value in field.enum_type.values]
    return []
