"""`InferenceTrace`: the trace that a request belongs to."""

from __future__ import annotations

__all__ = ["InferenceTrace"]


class InferenceTrace:
    """Identifies the trace of a request, so that BLS requests can be part of it."""

    __slots__ = ("_context", "_id")

    def __init__(self) -> None:
        self._context = ""
        self._id = 0

    def get_context(self) -> str | None:
        """Return the OpenTelemetry context of the request as JSON text, None where there is none."""
        return self._context or None

    def __repr__(self) -> str:
        return f"InferenceTrace({self._context!r})"
