"""`InferenceTrace`: the trace that a request belongs to.

A server in OpenTelemetry mode gives every traced request a span of its own; its context, JSON text with
W3C's ``traceparent`` (and ``tracestate``, where the client sent one), names the trace and that span. A
request that is made with ``trace=request.trace()`` gets a child span of the same trace, and one that is made
without is not traced.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

_FLAGS = "01"  # sampled: what is traced at all is recorded


class InferenceTrace:
    """Identifies the trace of a request, so that BLS requests can be part of it.

    Models get theirs from `InferenceRequest.trace`; none can be made.

    Raises
    ------
    TypeError
        On an attempt to make one.

    Notes
    -----
    Mirrors `InferenceTrace` of python_backend/src/infer_trace.cc and server/src/tracer.cc.
    """

    __slots__ = ("_context",)

    _context: str

    def __init__(self) -> None:
        raise TypeError("InferenceTrace: No constructor defined! Pass on that of a request: request.trace()")

    @classmethod
    def _of(cls, context: str) -> InferenceTrace:
        trace = cls.__new__(cls)
        trace._context = context
        return trace

    @classmethod
    def _begin(cls, carrier: Mapping[str, str] | None = None) -> InferenceTrace:
        """Return a trace to send a request with: a new one, or that of a (valid) carrier."""
        if carrier is None:
            carrier = {"traceparent": f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-{_FLAGS}"}
        return cls._of(json.dumps(dict(carrier), separators=(",", ":")))

    def _child(self) -> InferenceTrace:
        """Return the trace of a request that is sent with this one: the same trace, a span of its own."""
        if not self._context:
            return self
        carrier: dict[str, Any] = json.loads(self._context)
        _, trace_id, _, _ = carrier["traceparent"].split("-")[:4]
        carrier["traceparent"] = f"00-{trace_id}-{os.urandom(8).hex()}-{_FLAGS}"
        return self._of(json.dumps(carrier, separators=(",", ":")))

    def get_context(self) -> str | None:
        """Return the OpenTelemetry context of the request as JSON text, None where it is not traced."""
        return self._context or None

    def __repr__(self) -> str:
        return f"<InferenceTrace {self._context or 'of nothing'}>"


NO_TRACE = InferenceTrace._of("")
