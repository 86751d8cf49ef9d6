"""The trace that a request from outside joins, or begins."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bls_notebook.engine.errors import BLSError
from bls_notebook.pb_utils.trace import InferenceTrace

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_EXPECTED = (
    "expected True for a new trace, W3C's traceparent such as "
    "'00-0af7651916cd43dd8448eb211c12666c-b7ad6b7169203331-01', or a mapping with it (and tracestate, if any)"
)


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
