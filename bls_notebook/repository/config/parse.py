"""From config.pbtxt text, or any other form that a caller has, to Triton's ModelConfig message."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from bls_notebook.engine.errors import ConfigError

from .explain import plain_reason, shown_line
from .from_json import parse_json
from .proto import ModelConfigMessage, model_config_class, new_config


def parse_config(
    config: str | Mapping[str, Any] | ModelConfigMessage | ConfigError | None,
    *,
    model: str,
    source: str = "config",
) -> ModelConfigMessage:
    """Return a configuration from whatever form the caller has; `source` is its name in errors.

    That is text of a config.pbtxt, JSON text (it begins with ``{``), a dict of the JSON's form, a message
    (which is copied), or None for an empty configuration. A ConfigError, which says why there is none of
    these, is raised.
    """
    if config is None:
        return new_config()
    if isinstance(config, ConfigError):
        raise ConfigError(*config.args)
    if isinstance(config, str):
        # No config.pbtxt begins with a bracket or brace.
        if config.lstrip().startswith(("{", "[")):
            return parse_json(config, model=model, source=source)
        return parse_pbtxt(config, model=model, source=source)
    if isinstance(config, Mapping):
        return parse_json(config, model=model, source=source)
    if isinstance(config, model_config_class()):
        return deepcopy(config)
    raise ConfigError(
        f"model '{model}': {source} is of type {type(config).__name__}; "
        "give config.pbtxt text, JSON text, a dict or a ModelConfig"
    )


def parse_pbtxt(text: str, *, model: str, source: str = "config.pbtxt") -> ModelConfigMessage:
    """Return the configuration that a config.pbtxt's text describes.

    Its errors are one line: the place, the reason and the offending line of the text.
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
        reason = plain_reason(reason, message.DESCRIPTOR)
        if _ends_early(reason, line[column - 1 :], lines[number:]):
            reason += " before the end: is a brace, bracket or quote left open?"
        place = f"{source}:{number}:{column}"
        if unread := fill_templates(text, model=model).unread:
            reason = open_reason(unread)
        raise ConfigError(f"model '{model}': {place}: {reason}{shown_line(line)}") from None


def _ends_early(reason: str, rest: str, later: list[str]) -> bool:
    if any(line.strip() for line in later):
        return False
    closing = ('Expected "}"', 'Expected "]"', 'Expected ","')
    # The place is that of the last token, or beyond it.
    return not rest.strip() or (len(rest.split()) == 1 and reason.startswith(closing))
