"""The parameters of a request from outside any model, as Triton's HTTP endpoint takes them, and its trace.

It takes more than a model may give its BLS requests: floats, and a ``priority``, which it keeps for itself.
What else it keeps for itself are arguments here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from bls_notebook.engine.errors import BLSError
from bls_notebook.pb_utils.trace import InferenceTrace

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_ARGUMENTS = {
    "timeout": "timeout",
    "sequence_id": "correlation_id",
    "sequence_start": "flags",
    "sequence_end": "flags",
}
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_EXPECTED = (
    "expected True for a new trace, W3C's traceparent such as "
    "'00-0af7651916cd43dd8448eb211c12666c-b7ad6b7169203331-01', or a mapping with it (and tracestate, if any)"
)


def client_parameters(parameters: Mapping[str, Any]) -> tuple[str, int]:
    """Return the parameters that reach the model, as JSON text, and the priority; 0 for the default level.

    A whole number beyond 64 bits arrives as a float, as it does by HTTP.
    """
    if not isinstance(parameters, Mapping):
        raise BLSError(f"parameters: got {parameters!r}, expected a dict such as {{'lang': 'en'}}")
    own: dict[str, Any] = {}
    priority = 0
    for name, value in parameters.items():
        if not isinstance(name, str):
            raise BLSError(f"parameters: got the key {name!r}, expected text")
        if name == "priority":
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise BLSError(
                    "parameters: 'priority' is the request's level of priority, a whole number from 0 on; "
                    f"got {value!r}"
                )
            priority = value
        elif name in _ARGUMENTS or name.startswith("triton_") or name == "binary_data_output":
            remedy = f"; give {_ARGUMENTS[name]}= instead" if name in _ARGUMENTS else ""
            raise BLSError(f"parameters: Triton keeps the name {name!r} for itself{remedy}")
        else:
            own[name] = _checked(name, value)
    return json.dumps(own), priority


def _checked(name: str, value: Any) -> str | int | float:
    if not isinstance(value, (bool, int, float, str)):
        raise BLSError(
            f"parameters: {name!r} is {value!r} of type {type(value).__name__}; expected text, a whole "
            "number, a float or a boolean"
        )
    for text in (name, value):
        if isinstance(text, str) and text.encode("utf-8", "ignore") != text.encode("utf-8", "replace"):
            raise BLSError(f"parameters: {name!r} is {value!r}; expected text that has a UTF-8 form")
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        try:
            return float(value)
        except OverflowError:
            raise BLSError(f"parameters: {name!r} is a whole number of more than 1024 bits") from None
    return value


def trace_of(value: object) -> InferenceTrace | None:
    """Return what a request carries for `trace`; None for no trace.

    A mapping is what OpenTelemetry's ``propagate.inject`` fills in, or the headers of a web request; its
    other entries are not looked at. What is no traceparent is an error. (A server would send the request
    without a trace, and not say so.)
    """
    if value is None or value is False:
        return None
    if value is True:
        return InferenceTrace._begin()
    given = value if isinstance(value, Mapping) else {"traceparent": value}
    found = {str(key).lower(): text for key, text in given.items()}
    parent, state = found.get("traceparent"), found.get("tracestate")
    if not isinstance(parent, str) or not _TRACEPARENT.fullmatch(parent):
        raise BLSError(f"trace: got {value!r}; {_EXPECTED}")
    if not isinstance(state, (str, type(None))):
        raise BLSError(f"trace: tracestate: got {state!r}, expected text")
    carrier = {"traceparent": parent}
    return InferenceTrace._begin({**carrier, "tracestate": state} if state else carrier)
