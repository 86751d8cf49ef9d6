"""`Options` of a request: ID, sequence, timeout, parameters, preferred memory and trace.

In OpenTelemetry mode, Triton gives every traced request a new span. The context of its `InferenceTrace`
(JSON text with W3C's ``traceparent``, and ``tracestate`` if the client sent one) identifies the trace and the span.
A request made with ``trace=request.trace()`` gets a child span of the same trace; others are not traced.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import ServerEnum, TritonModelException

_FLAGS = "01"  # W3C's flag "sampled"


class InferenceTrace:
    """Identifies the trace of a request, so that BLS requests can be part of it.

    Models get one from `InferenceRequest.trace`; they cannot make one. Mirrors python_backend/src/infer_trace.cc.
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
        """Return the trace of a valid carrier; without a carrier, a new trace."""
        if carrier is None:
            carrier = {"traceparent": f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-{_FLAGS}"}
        return cls._of(json.dumps(dict(carrier), separators=(",", ":")))

    def _child(self) -> InferenceTrace:
        """Return the trace for a request that is sent with this one: the same trace ID, a new span."""
        if not self._context:
            return self
        carrier: dict[str, Any] = json.loads(self._context)
        _, trace_id, _, _ = carrier["traceparent"].split("-")[:4]
        carrier["traceparent"] = f"00-{trace_id}-{os.urandom(8).hex()}-{_FLAGS}"
        return self._of(json.dumps(carrier, separators=(",", ":")))

    def get_context(self) -> str | None:
        """Return the OpenTelemetry context of the request as JSON text; None if it is not traced."""
        return self._context or None

    def __repr__(self) -> str:
        return f"<InferenceTrace {self._context or 'of nothing'}>"


NO_TRACE = InferenceTrace._of("")


_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class MemoryType(ServerEnum):
    """Kinds of memory, with Triton's numbers (`PreferredMemory::MemoryType`)."""

    TRITONSERVER_MEMORY_GPU = 0
    TRITONSERVER_MEMORY_CPU = 1

    def __str__(self) -> str:
        return f"MemoryType.{self.name}"  # as Triton prints it


class PreferredMemory:
    """The memory in which a BLS request wants its outputs.

    Parameters
    ----------
    preferred_memory_type : MemoryType
    preferred_device_id : int
        Number of the device of that type.

    Raises
    ------
    TypeError
        An argument has the wrong type.
    """

    __slots__ = ("_device_id", "_memory_type")

    def __init__(self, preferred_memory_type: MemoryType, preferred_device_id: int = 0) -> None:
        if not isinstance(preferred_memory_type, MemoryType):
            raise TypeError(
                "PreferredMemory: preferred_memory_type must be TRITONSERVER_MEMORY_CPU or "
                f"TRITONSERVER_MEMORY_GPU, got {preferred_memory_type!r}"
            )
        if not isinstance(preferred_device_id, int):
            raise TypeError(f"PreferredMemory: preferred_device_id must be int, got {preferred_device_id!r}")
        self._memory_type = preferred_memory_type
        self._device_id = preferred_device_id

    def __repr__(self) -> str:
        return f"PreferredMemory({self._memory_type.name}, {self._device_id})"


@dataclass(eq=False, repr=False)
class Options:
    """The options of a request. Requests share them, so they are replaced and never changed."""

    request_id: str = ""
    correlation_id: int | str = 0
    flags: int = 0
    timeout: int = 0
    parameters: str = "{}"
    preferred_memory: PreferredMemory | None = None
    trace: InferenceTrace | None = None
    priority: int = 0  # in the queue of a dynamic batcher; models cannot set it


DEFAULT_OPTIONS = Options()


def parameters_to_json(parameters: Any) -> str:
    """Return parameters as JSON text; raise TritonModelException for keys or values that Triton does not accept."""
    if parameters is None:
        return "{}"
    if not isinstance(parameters, dict):
        raise TritonModelException(f"Expect parameters to have type dict, got {type(parameters)}")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        if not isinstance(value, (bool, int, str)):
            raise TritonModelException(f"Expect parameters values to have type bool/int/str, found type {type(value)}")
    return json.dumps(parameters)


def as_sent(parameters: str) -> str:
    """Return the JSON text of parameters as the server passes it on: without spaces."""
    return json.dumps(json.loads(parameters), separators=(",", ":"))


def correlation_problem(correlation_id: int | str) -> str | None:
    """Return the server's error for a correlation ID, or None."""
    is_long = isinstance(correlation_id, str) and len(correlation_id.encode("utf-8", "replace")) > 128
    return "string correlation ID cannot be longer than 128 characters" if is_long else None


def parameters_problem(text: str) -> str | None:
    """Return the server's error for parameters, or None."""
    for value in json.loads(text).values():
        if isinstance(value, int) and not _LEAST <= value <= _MOST:
            return "Unsupported value type on parameters"
        if isinstance(value, str) and value.encode("utf-8", "ignore") != value.encode("utf-8", "replace"):
            return "failed to parse the request JSON buffer: The surrogate pair in string is invalid."
    return None
