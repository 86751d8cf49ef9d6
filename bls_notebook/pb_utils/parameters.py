"""Parameters of requests and responses: a dict of text to text, whole numbers or booleans."""

from __future__ import annotations

import json
from typing import Any

from .errors import TritonModelException

__all__ = ["parameters_problem", "parameters_to_json"]

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def parameters_to_json(parameters: Any) -> str:
    """Return the parameters as the JSON text that the other side reads; None is no parameters.

    Raises
    ------
    TritonModelException
        Not a dict, a key that is not text, or a value that is not bool, int or str.
    """
    if parameters is None:
        return "{}"
    if not isinstance(parameters, dict):
        raise TritonModelException(f"Expect parameters to have type dict, got {type(parameters)}")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        if not isinstance(value, (bool, int, str)):
            raise TritonModelException(
                f"Expect parameters values to have type bool/int/str, found type {type(value)}"
            )
    return json.dumps(parameters)


def parameters_problem(text: str) -> str | None:
    """Return what the server says of parameters when their request is sent, None where it takes them."""
    for value in json.loads(text).values():
        if isinstance(value, int) and not _LEAST <= value <= _MOST:
            return "Unsupported value type on parameters"
        if isinstance(value, str) and value.encode("utf-8", "ignore") != value.encode("utf-8", "replace"):
            return "failed to parse the request JSON buffer: The surrogate pair in string is invalid."
    return None
