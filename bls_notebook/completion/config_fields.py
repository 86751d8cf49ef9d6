"""Completion in config.pbtxt: names of fields, and values of enumerations and booleans.

The fields come from Triton's ModelConfig message: inside ``input [ {``, the fields of ModelInput.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from bls_notebook.repository.config import model_config_class, model_config_pb2

_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?P<string>"(?:[^"\\\n]|\\.)*(?:"|(?=\n))|'(?:[^'\\\n]|\\.)*(?:'|(?=\n)))
    |(?P<open>["'].*)
    |(?P<word>[\w.+-]+)
    |(?P<mark>\S)""",
    re.VERBOSE | re.DOTALL,
)


def enumeration(name: str) -> list[str]:
    """Return the values of an enumeration of model_config.proto, such as ``ModelInstanceGroup.Kind``."""
    node: Any = model_config_pb2()
    for part in name.split("."):
        node = getattr(node, part)
    return [value for value in dict(node.items()) if value != "TYPE_INVALID"]


@dataclass
class _Message:
    """A message whose brace is open at the cursor; `descriptor` is None if its field is unknown."""

    descriptor: Any
    of: Any = None  # the field with this message as its value
    listed: bool = False  # inside a list
    written: set[str] = field(default_factory=set)  # names of the fields so far


def in_config(text: str, models: list[str]) -> tuple[str, list[str]]:
    """Return the last word of config.pbtxt before the cursor, and the completions that can replace it."""
    fragment = re.search(r"\w*\Z", text)
    begun = fragment[0] if fragment else ""
    messages = [_Message(model_config_class().DESCRIPTOR)]
    of: Any = None  # the most recent field
    expected, listed = "field", False
    for token in _TOKEN.finditer(text[: len(text) - len(begun)]):
        kind, part = token.lastgroup, token[0]
        if kind == "comment":
            if token.end() == len(text) - len(begun) and "\n" not in text[token.start() :]:
                return begun, []
        elif kind == "open":
            name = part[1:] + begun
            return name, [m for m in models if m.startswith(name)] if of is not None and of.name == "model_name" else []
        elif part in "{<" and expected != "next":
            messages.append(_Message(of.message_type if of is not None else None, of, listed))
            of, expected, listed = None, "field", False
        elif part in "}>":
            closed = messages.pop() if len(messages) > 1 else messages[0]
            of, listed, expected = closed.of, closed.listed, "next" if closed.listed else "field"
        elif part == "[":
            listed, expected = True, "value"
        elif part == "]" or (part in ",;" and not listed):
            listed, expected = False, "field"
        elif part in ",:":
            expected = "value"
        elif kind == "word" and expected == "field":
            message = messages[-1]
            of = message.descriptor.fields_by_name.get(part) if message.descriptor is not None else None
            message.written.add(part)
            expected = "name"
        elif expected == "value":
            expected = "next" if listed else "field"
    candidates = _fields(messages[-1]) if expected == "field" else _values(of) if expected == "value" else []
    return begun, [name for name in candidates if name.startswith(begun)]


def _fields(message: _Message) -> list[str]:
    """Return the fields that can still be added: repeated fields again, others once, one field of each oneof."""
    if message.descriptor is None:
        return []
    fields = message.descriptor.fields
    chosen = {f.containing_oneof.name for f in fields if f.name in message.written and f.containing_oneof}
    return [
        f.name
        for f in fields
        if (f.is_repeated or f.name not in message.written)
        and (f.containing_oneof is None or f.containing_oneof.name not in chosen)
    ]


def _values(of: Any) -> list[str]:
    if of is None:
        return []
    if of.enum_type is not None:
        return [value.name for value in of.enum_type.values if value.name != "TYPE_INVALID"]
    return ["true", "false"] if of.cpp_type == of.CPPTYPE_BOOL else []
