"""What a request carries beside its tensors, as servers take it, and what an answer does. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bls_notebook.pb_utils.options import DEFAULT_OPTIONS, Options

_START, _END = 1, 2  # `TRITONSERVER_REQUEST_FLAG_SEQUENCE_START` and `_END`
FINAL = "triton_final_response"
# What servers say with every answer, and no model has said.
_OF_THE_SERVER = frozenset((FINAL, "binary_data_size"))
CORRELATION = "x-correlation-id"


def parameters_of(options: Options) -> dict[str, Any]:
    """Return a request's parameters, with those by which the protocol says the other options."""
    if options is DEFAULT_OPTIONS:
        return {}
    out: dict[str, Any] = json.loads(options.parameters)
    if options.correlation_id:
        out["sequence_id"] = options.correlation_id
        out["sequence_start"] = bool(options.flags & _START)
        out["sequence_end"] = bool(options.flags & _END)
    if options.priority:
        out["priority"] = options.priority
    if options.timeout:
        out["timeout"] = options.timeout
    return out


def headers_of(options: Options) -> dict[str, str]:
    """Return the headers of a request's own: its trace, and its sequence for what balances load."""
    out: dict[str, str] = {}
    if options.correlation_id:
        text = str(options.correlation_id)
        if text.isascii() and text.isprintable():
            out[CORRELATION] = text
    context = None if options.trace is None else options.trace.get_context()
    if context:
        carrier = json.loads(context)
        given = {k: carrier.get(k) for k in ("traceparent", "tracestate")}
        out |= {k: v for k, v in given.items() if isinstance(v, str) and v.isascii() and v.isprintable()}
    return out


def parameters_of_model(parameters: Mapping[str, Any]) -> str:
    """Return those parameters of an answer that its model may have sent, as JSON text."""
    own = {k: v for k, v in parameters.items() if k not in _OF_THE_SERVER}
    return json.dumps(own) if own else "{}"
