"""Plain values as YAML that every reader of it takes alike."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/][\w./-]*")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}  # no text for some reader of YAML


def yaml_lines(value: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield the lines of a mapping as YAML, block style; lists of plain values on one line."""
    for key, each in value.items():
        if isinstance(each, Mapping):
            yield f"{indent}{_scalar(key)}:"
            yield from yaml_lines(each, indent + "  ")
        elif isinstance(each, list) and any(isinstance(item, Mapping) for item in each):
            yield f"{indent}{_scalar(key)}:"
            for item in each:
                first, *rest = yaml_lines(item, "")
                yield f"{indent}  - {first}"
                yield from (f"{indent}    {line}" for line in rest)
        else:
            yield f"{indent}{_scalar(key)}: {_scalar(each)}"


def _scalar(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_scalar, value))}]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value)
