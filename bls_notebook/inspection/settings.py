"""Where each field of a model's configuration comes from: its author, the model, Triton, or nobody."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from bls_notebook.repository.config.proto import ModelConfigMessage
from bls_notebook.repository.config.render import to_dict

from .model_view import Setting

_NAMED = ("input", "output")  # lists whose items go by their names


def settings(
    written: ModelConfigMessage, by_triton: ModelConfigMessage, completed: ModelConfigMessage
) -> tuple[Setting, ...]:
    """Return every field of a completed configuration.

    `written` is what its author gave, `by_triton` the same with what Triton fills in without asking the
    model; what the completed one has more is from `auto_complete_config`.
    """
    author, triton = dict(_set(written)), dict(_set(by_triton))
    found = [
        Setting(path, value, "author" if path in author else "Triton" if path in triton else "model")
        for path, value in _set(completed)
    ]
    known = {setting.path for setting in found}
    rest = (each for each in _every(to_dict(completed)) if each[0] not in known)
    return (*found, *(Setting(path, value, "default") for path, value in rest))


def _set(message: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The fields that are set, by their paths, each that is a message by its own fields."""
    for field, value in message.ListFields():
        here = f"{path}.{field.name}" if path else field.name
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            of = kind.fields_by_name["value"]
            for key in sorted(value):
                if of.message_type is None:
                    yield f"{here}[{key}]", _spelled(of, value[key])
                else:
                    yield from _whole(value[key], f"{here}[{key}]")
        elif field.is_repeated and kind is not None:
            for i, item in enumerate(value):
                yield from _whole(item, f"{here}[{item.name if field.name in _NAMED else i}]")
        elif kind is not None:
            yield from _whole(value, here)
        elif field.is_repeated:
            yield here, f"[{', '.join(_spelled(field, each) for each in value)}]"
        else:
            yield here, _spelled(field, value)


def _whole(message: Any, path: str) -> Iterator[tuple[str, str]]:
    inside = list(_set(message, path))
    yield from inside or [(path, "{}")]


def _spelled(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return named.name if named is not None else str(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (str, bool)) else str(value)


def _every(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """All fields of the JSON that a model is handed, by the same paths."""
    if isinstance(value, dict) and value:
        for key, inside in value.items():
            in_map = path in ("parameters", "metric_tags", "cc_model_filenames")
            yield from _every(inside, f"{path}[{key}]" if in_map else f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for i, item in enumerate(value):
            yield from _every(item, f"{path}[{item['name'] if path in _NAMED else i}]")
    else:
        yield path, json.dumps(value, ensure_ascii=False)
