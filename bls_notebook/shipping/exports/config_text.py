"""Change fields in the text of a config.pbtxt, and keep its other lines and comments."""

from __future__ import annotations

import re
from copy import deepcopy

from bls_notebook.engine import BLSError
from bls_notebook.repository.config import ModelConfigMessage, parse_config, to_pbtxt

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|#[^\n]*|\w+|[^\s\w]')
_VALUE = re.compile(r"\s*[:{\[<]")


def changed_text(text: str, before: ModelConfigMessage, after: ModelConfigMessage) -> str:
    """Return the text of the configuration `before` with the fields of `after` that differ."""
    fields = {field.name: None for message in (before, after) for field, _ in message.ListFields()}
    changed = [name for name in fields if _only(before, name) != _only(after, name)]
    spans = [span for span in _spans(text) if span[0] in changed]
    new = {name: to_pbtxt(_only(after, name)).strip() for name in changed}
    out = text.rstrip() + "".join(f"\n{new[name]}" for name in changed if name not in {span[0] for span in spans})
    for number, (name, start, end) in reversed([*enumerate(spans)]):
        is_first = name not in {earlier for earlier, *_ in spans[:number]}
        out = out[:start] + (new[name] if is_first else "") + out[end:]
    out = f"{out.rstrip()}\n"
    try:
        parsed = parse_config(out, model=after.name)
    except BLSError:
        return to_pbtxt(after)
    parsed.name = after.name  # it may be missing
    return out if parsed == after else to_pbtxt(after)


def _only(message: ModelConfigMessage, name: str) -> ModelConfigMessage:
    """Return a message with one field."""
    part = deepcopy(message)
    for field, _ in message.ListFields():
        if field.name != name:
            part.ClearField(field.name)
    return part


def _spans(text: str) -> list[tuple[str, int, int]]:
    """Return each field of the message itself: its name, and the start and end in the text."""
    spans: list[tuple[str, int, int]] = []
    depth = 0
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word.startswith("#"):
            continue
        if depth == 0 and word.isidentifier() and _VALUE.match(text, token.end()):
            spans.append((word, token.start(), token.end()))
        elif spans and word not in ",;":
            spans[-1] = (*spans[-1][:2], token.end())
        depth += (word in "{[<") - (word in "}]>")
    return spans
