"""What config.pbtxt may go on with at a cursor: fields, and values of those that have few.

The fields are those of Triton's own ModelConfig message, of the part that the cursor is in: inside
``input [ {`` those of an input.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from bls_notebook.repository.config.message import model_config_class, model_config_pb2

_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?P<string>"(?:[^"\\\n]|\\.)*(?:"|(?=\n))|'(?:[^'\\\n]|\\.)*(?:'|(?=\n)))
    |(?P<open>["'].*)
    |(?P<word>[\w.+-]+)
    |(?P<mark>\S)""",
    re.VERBOSE | re.DOTALL,
)


def enumeration(name: str) -> list[str]:
    """Return the values of an enumeration of model_config.proto, which has this name there."""
    found: Any = model_config_pb2()
    for part in name.split("."):
        found = getattr(found, part)
    return [value for value in dict(found.items()) if value != "TYPE_INVALID"]


@dataclass
class _Message:
    """A message whose brace is open: what it is of, or None; the fields that it has had."""

    descriptor: Any
    of: Any = None  # the field that it is a value of
    listed: bool = False  # in brackets
    seen: set[str] = field(default_factory=set)


def in_config(text: str, models: list[str]) -> tuple[str, list[str]]:
    """Return the word that config.pbtxt, up to the cursor, ends with, and what may stand in its place."""
    fragment = re.search(r"\w*\Z", text)
    begun = fragment[0] if fragment else ""
    messages = [_Message(model_config_class().DESCRIPTOR)]
    of: Any = None  # the field that was named last
    expected, listed = "field", False
    for token in _TOKEN.finditer(text[: len(text) - len(begun)]):
        kind, said = token.lastgroup, token[0]
        if kind == "comment":
            if token.end() == len(text) - len(begun) and "\n" not in text[token.start() :]:
                return begun, []
        elif kind == "open":
            name = said[1:] + begun
            return name, [m for m in models if m.startswith(name)] if _is(of, "model_name") else []
        elif said in "{<" and expected != "next":
            messages.append(_Message(of.message_type if of is not None else None, of, listed))
            of, expected, listed = None, "field", False
        elif said in "}>":
            closed = messages.pop() if len(messages) > 1 else messages[0]
            of, listed, expected = closed.of, closed.listed, "next" if closed.listed else "field"
        elif said == "[":
            listed, expected = True, "value"
        elif said == "]" or (said in ",;" and not listed):
            listed, expected = False, "field"
        elif said in ",:":
            expected = "value"
        elif kind == "word" and expected == "field":
            message = messages[-1]
            of = message.descriptor.fields_by_name.get(said) if message.descriptor is not None else None
            message.seen.add(said)
            expected = "name"
        elif expected == "value":
            expected = "next" if listed else "field"
    found = _fields(messages[-1]) if expected == "field" else _values(of) if expected == "value" else []
    return begun, [name for name in found if name.startswith(begun)]


def _fields(message: _Message) -> list[str]:
    """The fields that a message may still have: lists again, others once, of a oneof a single one."""
    if message.descriptor is None:
        return []
    fields = message.descriptor.fields
    chosen = {f.containing_oneof.name for f in fields if f.name in message.seen and f.containing_oneof}
    return [
        f.name
        for f in fields
        if (f.is_repeated or f.name not in message.seen)
        and (f.containing_oneof is None or f.containing_oneof.name not in chosen)
    ]


def _values(of: Any) -> list[str]:
    if of is None:
        return []
    if of.enum_type is not None:
        return [value.name for value in of.enum_type.values if value.name != "TYPE_INVALID"]
    return ["true", "false"] if of.cpp_type == of.CPPTYPE_BOOL else []


def _is(of: Any, name: str) -> bool:
    return of is not None and of.name == name
