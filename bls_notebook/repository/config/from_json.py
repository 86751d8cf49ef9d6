"""From JSON text, or a dict of its form, to Triton's ModelConfig message."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from bls_notebook.engine.errors import ConfigError

from .explain import plain_reason, shown_line
from .proto import ModelConfigMessage, new_config

DEEPEST = 20  # levels of a configuration; it has fewer


def parse_json(
    config: str | Mapping[str, Any], *, model: str, source: str = "config", newer: bool = False
) -> ModelConfigMessage:
    """Return the configuration that JSON text, or a dict of its form, describes.

    It is the form that `pb_utils.load_model(config=...)` takes: field names as in config.pbtxt (or in
    camel case), enumerators by name in any case or by number. What is `newer` may have fields that are not
    known here, which are left out.
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
        return json_format.ParseDict(_ready(document, message.DESCRIPTOR), message, newer)
    except RecursionError:
        raise _too_deep(model, source) from None
    except (json_format.ParseError, TypeError, ValueError, OverflowError) as error:
        reason = plain_reason(str(error), message.DESCRIPTOR)
        culprit = re.search(r"'([^']*)'\W*$", str(error))
        where = _field_of(document, culprit[1]) if culprit else ""
        raise ConfigError(f"model '{model}': {source}: {where}{reason}") from None


def _too_deep(model: str, source: str) -> ConfigError:
    return ConfigError(f"model '{model}': {source}: it is nested deeper than any configuration is")


def _shown(value: object) -> str:
    """What was given, for a message: the beginning of it, where it is long."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _field_of(data: Any, text: str, field: str = "", depth: int = 0) -> str:
    """Name the field that has a text where a number belongs, as ``output.dims: ``."""
    if depth > DEEPEST:
        return ""
    if data == text and field:
        return f"{field}: "
    items: Iterable[tuple[str, Any]] = ()
    if isinstance(data, dict):
        items = [(f"{field}.{key}".lstrip("."), value) for key, value in data.items()]
    elif isinstance(data, list):
        items = [(field, value) for value in data]
    return next((found for name, value in items if (found := _field_of(value, text, name, depth + 1))), "")


_BARE_NAME = re.compile(r'"(?:[^"\\]|\\.)*"|([A-Za-z_]\w*)(?=\s*:)')


def _loads(text: str) -> Any:
    """Decode JSON in which names may lack their quotes, as the server's reader takes it."""
    try:
        return json.loads(text, object_pairs_hook=_without_repeats)
    except json.JSONDecodeError as error:
        quoted = _BARE_NAME.sub(lambda found: f'"{found[1]}"' if found[1] else found[0], text)
        try:
            return json.loads(quoted, object_pairs_hook=_without_repeats)
        except json.JSONDecodeError:
            raise error from None  # with its place in the text that was given


def _decoded(text: str, model: str, source: str) -> Any:
    try:
        return _loads(text)
    except RecursionError:
        raise _too_deep(model, source) from None
    except json.JSONDecodeError as error:
        line = shown_line(text.split("\n")[error.lineno - 1])
        place = f"{source}:{error.lineno}:{error.colno}"
        raise ConfigError(f"model '{model}': {place}: not JSON: {error.msg}{line}") from None
    except ValueError as error:
        raise ConfigError(f"model '{model}': {source}: {error}") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"'{key}' is given twice in one JSON object; keep one of them")
        found[key] = value
    return found


def _ready(document: Mapping[str, Any], descriptor: Any, path: str = "") -> dict[str, Any]:
    """Return the document with what Triton's JSON reader takes and Python's protobuf does not.

    That is: enumerators in lower case, truth as text, one value in place of a list of one, and from
    Python callers tuples and NumPy scalars.
    """
    by_name = descriptor.fields_by_name
    by_camel = descriptor.fields_by_camelcase_name
    out: dict[str, Any] = {}
    for key, value in document.items():
        field = by_name.get(key) or by_camel.get(key) if isinstance(key, str) else None
        out[key] = value if field is None else _ready_field(value, field, f"{path}{key}")
    return out


def _ready_field(value: Any, field: Any, path: str) -> Any:
    if value is None:
        return None
    nested = field.message_type
    if nested is not None and nested.GetOptions().map_entry:
        if not isinstance(value, Mapping):
            raise ValueError(f"{path}: expected an object, got {_shown(value)}")
        of = nested.fields_by_name["value"]
        return {str(key): _ready_value(item, of, f"{path}[{key}]") for key, item in value.items()}
    if not field.is_repeated:
        return _ready_value(value, field, path)
    items = value if isinstance(value, (list, tuple)) else [value]
    return [_ready_value(item, field, f"{path}[{number}]") for number, item in enumerate(items)]


def _ready_value(value: Any, field: Any, path: str) -> Any:
    if field.message_type is not None:
        if isinstance(value, Mapping):
            return _ready(value, field.message_type, f"{path}.")
        fields = f"an object with the fields of {field.message_type.name}"
        raise ValueError(f"{path}: expected {fields}, got {_shown(value)}")
    if field.enum_type is not None and isinstance(value, str):
        return value.upper().replace("-", "_")
    if field.cpp_type == field.CPPTYPE_STRING and not isinstance(value, str):
        raise ValueError(f"{path}: expected text, got {_shown(value)}")
    if field.cpp_type == field.CPPTYPE_BOOL and value in ("true", "false"):
        return value == "true"
    item = getattr(value, "item", None)
    return item() if item is not None and getattr(value, "shape", None) == () else value
