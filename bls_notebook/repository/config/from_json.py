"""From JSON text, or a dict of its form, to Triton's ModelConfig message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bls_notebook.engine.errors import ConfigError

from .explain import plain_reason
from .proto import ModelConfigMessage, new_config

__all__ = ["parse_json"]


def parse_json(config: str | Mapping[str, Any], *, model: str, source: str = "config") -> ModelConfigMessage:
    """Return the configuration that JSON text, or a dict of its form, describes.

    It is the form that `pb_utils.load_model(config=...)` takes: field names as in config.pbtxt (or in
    camel case), enumerators by name in any case or by number.

    Raises
    ------
    ConfigError
        One line: the place and the reason.
    """
    from google.protobuf import json_format

    document = _decoded(config, model, source) if isinstance(config, str) else config
    if not isinstance(document, Mapping):
        raise ConfigError(
            f"model '{model}': {source}: expected a JSON object with the fields of ModelConfig, "
            f"got {type(document).__name__}"
        )
    message = new_config()
    try:
        return json_format.ParseDict(_ready(document, message.DESCRIPTOR), message)
    except (json_format.ParseError, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"model '{model}': {source}: {plain_reason(str(error), message.DESCRIPTOR)}"
        ) from None


def _decoded(text: str, model: str, source: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_repeats)
    except json.JSONDecodeError as error:
        line = text.split("\n")[error.lineno - 1].strip()
        raise ConfigError(
            f"model '{model}': {source}:{error.lineno}:{error.colno}: not JSON: {error.msg}"
            + (f"; the line is: {line[:160]}" if line else "")
        ) from None
    except ValueError as error:
        raise ConfigError(f"model '{model}': {source}: {error}") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"'{key}' is given twice in one JSON object; keep one of them")
        found[key] = value
    return found


def _ready(document: Mapping[str, Any], descriptor: Any) -> dict[str, Any]:
    """Return the document with what Triton's JSON reader takes and Python's protobuf does not.

    That is: enumerators in lower case, one value in place of a list of one, and from Python callers
    tuples and NumPy scalars.
    """
    by_name = descriptor.fields_by_name
    by_camel = descriptor.fields_by_camelcase_name
    out: dict[str, Any] = {}
    for key, value in document.items():
        field = by_name.get(key) or by_camel.get(key) if isinstance(key, str) else None
        try:
            out[key] = value if field is None else _ready_field(value, field)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    return out


def _ready_field(value: Any, field: Any) -> Any:
    nested = field.message_type
    if nested is not None and nested.GetOptions().map_entry:
        of = nested.fields_by_name["value"]
        if isinstance(value, Mapping):
            return {str(key): _ready_value(item, of) for key, item in value.items()}
        return value
    if not field.is_repeated or value is None:
        return _ready_value(value, field)
    items = value if isinstance(value, (list, tuple)) else [value]
    return [_ready_value(item, field) for item in items]


def _ready_value(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        if isinstance(value, Mapping):
            return _ready(value, field.message_type)
        if value is not None:
            raise ValueError(
                f"expected an object with the fields of {field.message_type.name}, got {value!r}"
            )
    if field.enum_type is not None and isinstance(value, str):
        return value.upper().replace("-", "_")
    item = getattr(value, "item", None)
    return item() if item is not None and getattr(value, "shape", None) == () else value
