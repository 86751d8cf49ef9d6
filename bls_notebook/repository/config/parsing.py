"""Parse a model's configuration into Triton's ModelConfig message: config.pbtxt text, JSON text, or a dict.

Errors of protobuf's parser are rewritten as one plain line that suggests the intended field or value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from bls_notebook.engine.errors import ConfigError
from bls_notebook.records.regular_file import MAX_CONFIG
from bls_notebook.records.visible_text import visible

from .protobuf_message import ModelConfigMessage, model_config_class, new_config

_UNKNOWN_FIELD = re.compile(r'Message type "(?:inference\.)?([\w.]+)" has no field named "([^"]*)"')
_UNKNOWN_VALUE = re.compile(
    r'Enum type "(?:inference\.)?(?P<kind>[\w.]+)" has no value (?:named|with number) (?P<value>[^\s.]*)'
    r"|Invalid enum value (?P<other>.*?) for enum type (?:inference\.)?(?P<of>[\w.]+)"
)
_TWICE = re.compile(r'should not have multiple "([^"]+)" fields')
_ONEOF = re.compile(r'Field "([^"]+)" is specified along with field "([^"]+)"')
_ONEOF_JSON = re.compile(r'should not have multiple "([^"]+)" oneof fields')
_LISTED = 16  # most names in a message; ModelConfig has more fields
_PLACE = re.compile(r" at \"?(ModelConfig[\w.\[\]'\"-]*)")


def _plain_reason(text: str, descriptor: Any) -> str:
    """Convert protobuf's error text to one plain line, without line and column.

    Suggested names come from the parsed message's descriptor.
    """
    text = visible(" ".join(text[:2000].split()))
    place = _PLACE.search(text)
    path = place[1].rstrip(".\"'").removeprefix("ModelConfig").lstrip(".") if place else ""
    where = f" (at {path})" if path else ""
    pool = descriptor.file.pool
    if found := _UNKNOWN_FIELD.search(text):
        known = [field.name for field in pool.FindMessageTypeByName(f"inference.{found[1]}").fields]
        return f"there is no field '{found[2]}' in {found[1]}{where}{_suggestion(found[2], known)}"
    if found := _UNKNOWN_VALUE.search(text):
        kind, value = found["kind"] or found["of"], found["value"] or found["other"] or ""
        known = [each.name for each in pool.FindEnumTypeByName(f"inference.{kind}").values]
        return f"'{value}' is not a value of {kind}{where}{_suggestion(value, known)}"
    if found := _TWICE.search(text):
        return f"'{found[1]}' is set twice; keep one of them"
    if found := _ONEOF.search(text):
        return f"'{found[1]}' and '{found[2]}' exclude each other; keep one of them"
    if found := _ONEOF_JSON.search(text):
        return f"more than one choice of {found[1]} is set; keep one of them"
    text = re.sub(r"^(?:Failed to parse [\w\[\]]+ field: )+", "", text)
    return _PLACE.sub("", text).rstrip(". ").replace("Couldn't parse", "cannot parse") + where


def _shown_line(line: str) -> str:
    stripped = line.strip()
    return f"; the line is: {visible(stripped[:160])}" if stripped else ""


def _suggestion(word: str, known: list[str]) -> str:
    # FP32 in place of TYPE_FP32, 'dynamic' of 'dynamic batching', or a typo.
    close = [name for name in known if name.endswith(f"_{word.upper()}") or name == f"{word.lower()}_batching"]
    if not close:
        import difflib  # first needed here

        close = difflib.get_close_matches(word, known, n=1, cutoff=0.75)
    if len(close) == 1:
        return f"; did you mean '{close[0]}'?"
    return f"; expected one of: {', '.join(known)}" if 0 < len(known) <= _LISTED else "; leave it out"


def parse_json(
    config: str | Mapping[str, Any], *, model: str, source: str = "config", newer: bool = False
) -> ModelConfigMessage:
    """Parse a configuration from JSON text, or from a dict of the same form.

    This is the form for `pb_utils.load_model(config=...)`: field names as in config.pbtxt (or in camel case),
    enumerators by name in any case or by number. With `newer`, unknown fields are ignored, because the configuration
    may come from a newer Triton.
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
        raise ConfigError(f"model '{model}': {source}: {_plain_reason(str(error), message.DESCRIPTOR)}") from None


def _too_deep(model: str, source: str) -> ConfigError:
    return ConfigError(f"model '{model}': {source}: it is nested too deeply; no ModelConfig is as deep")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


# Each character is read once, also in a text without an end: the input may have megabytes.
_BARE_NAME = re.compile(r'"[^"\\]*(?:\\[\s\S]?[^"\\]*)*"?|\b([A-Za-z_]\w*)\b(?=\s*:)')


def _decoded(text: str, model: str, source: str) -> Any:
    """Decode JSON. Names may lack their quotes, which the server's reader accepts."""
    try:
        try:
            return json.loads(text, object_pairs_hook=_without_repeats)
        except json.JSONDecodeError as error:
            quoted = _BARE_NAME.sub(lambda found: f'"{found[1]}"' if found[1] else found[0], text)
            try:
                return json.loads(quoted, object_pairs_hook=_without_repeats)
            except json.JSONDecodeError:
                raise error from None  # its line and column refer to the original text
    except RecursionError:
        raise _too_deep(model, source) from None
    except json.JSONDecodeError as error:
        line = _shown_line(text.split("\n")[error.lineno - 1])
        place = f"{source}:{error.lineno}:{error.colno}"
        raise ConfigError(f"model '{model}': {place}: not JSON: {error.msg}{line}") from None
    except ValueError as error:
        raise ConfigError(f"model '{model}': {source}: {error}") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, value in pairs:
        if key in document:
            raise ValueError(f"'{key}' is set twice in one JSON object; keep one of them")
        document[key] = value
    return document


def _ready(document: Mapping[str, Any], descriptor: Any, path: str = "") -> dict[str, Any]:
    """Convert values that Triton's JSON reader accepts and Python's protobuf does not.

    These are enumerators in lower case, booleans as text, one value in place of a list of one, and from Python callers
    tuples and NumPy scalars.
    """
    out: dict[str, Any] = {}
    for key, value in document.items():
        field = descriptor.fields_by_name.get(key) or descriptor.fields_by_camelcase_name.get(key)
        out[key] = value if field is None or value is None else _ready_field(value, field, f"{path}{key}")
    return out


def _ready_field(value: Any, field: Any, path: str) -> Any:
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
    if isinstance(value, str):
        if field.enum_type is not None:
            return value.upper().replace("-", "_")
        if field.cpp_type == field.CPPTYPE_BOOL and value in ("true", "false"):
            return value == "true"
        if field.cpp_type not in (field.CPPTYPE_STRING, field.CPPTYPE_BOOL):
            try:
                float(value)
            except ValueError:
                raise ValueError(f"{path}: expected a number, got {_shown(value)}") from None
    elif field.cpp_type == field.CPPTYPE_STRING:
        raise ValueError(f"{path}: expected text, got {_shown(value)}")
    item = getattr(value, "item", None)
    return item() if item is not None and getattr(value, "shape", None) == () else value


def parse_config(
    config: str | Mapping[str, Any] | ModelConfigMessage | ConfigError | None, *, model: str
) -> ModelConfigMessage:
    """Parse a configuration in any form.

    The form is the text of a config.pbtxt, JSON text (starting with ``{``), a dict of the same form, a message (which
    is copied), or None for an empty configuration. A ConfigError, the result of an unreadable file, is raised.
    """
    if config is None:
        return new_config()
    if isinstance(config, ConfigError):
        raise ConfigError(*config.args)
    if isinstance(config, str) and len(config) > MAX_CONFIG:
        raise ConfigError(
            f"model '{model}': config: it has {len(config):,} characters, expected at most {MAX_CONFIG:,}"
        )
    # No config.pbtxt starts with a bracket or brace.
    if isinstance(config, Mapping) or (isinstance(config, str) and config.lstrip().startswith(("{", "["))):
        return parse_json(config, model=model)
    if isinstance(config, str):
        return parse_pbtxt(config, model=model)
    if isinstance(config, model_config_class()):
        return deepcopy(config)
    raise ConfigError(
        f"model '{model}': config: got {type(config).__name__}, expected config.pbtxt text, JSON text, a dict or a "
        "ModelConfig"
    )


def parse_pbtxt(text: str, *, model: str) -> ModelConfigMessage:
    """Parse a configuration from the text of a config.pbtxt.

    Errors are one line: the place, the reason and the offending line of the text.
    """
    from google.protobuf import text_format

    message = new_config()
    try:
        return text_format.Parse(text, message)
    except text_format.ParseError as error:
        number, column = error.GetLine() or 1, error.GetColumn() or 1
        from .templates import fill_templates, open_reason  # first needed here

        lines = text.split("\n")
        line = lines[number - 1] if number <= len(lines) else ""
        reason = str(error).removeprefix(f"{number}:{column} : ").removeprefix(f"'{line}': ")
        reason = _plain_reason(reason, message.DESCRIPTOR)
        if _ends_early(reason, line[column - 1 :], lines[number:]):
            reason += " before the end: is a brace, bracket or quote left open?"
        if unread := fill_templates(text, model=model).unread:
            reason = open_reason(unread)
        raise ConfigError(f"model '{model}': config.pbtxt:{number}:{column}: {reason}{_shown_line(line)}") from None


def _ends_early(reason: str, rest: str, later: list[str]) -> bool:
    if any(line.strip() for line in later):
        return False
    closing = ('Expected "}"', 'Expected "]"', 'Expected ","')
    # The parser reports the place of the last token, or behind it.
    return not rest.strip() or (len(rest.split()) == 1 and reason.startswith(closing))
