"""`Options`: what a request carries beside its tensors."""

from __future__ import annotations

from .memory import PreferredMemory
from .trace import InferenceTrace

__all__ = ["DEFAULT_OPTIONS", "Options"]


class Options:
    """What a request carries beside its tensors; shared by requests, replaced and never changed."""

    __slots__ = (
        "correlation_id",
        "flags",
        "parameters",
        "preferred_memory",
        "priority",
        "request_id",
        "timeout",
        "trace",
    )

    def __init__(
        self,
        request_id: str = "",
        correlation_id: int | str = 0,
        flags: int = 0,
        timeout: int = 0,
        parameters: str = "{}",
        preferred_memory: PreferredMemory | None = None,
        trace: InferenceTrace | None = None,
        priority: int = 0,
    ) -> None:
        self.request_id = request_id
        self.correlation_id = correlation_id
        self.flags = flags
        self.timeout = timeout
        self.parameters = parameters
        self.preferred_memory = preferred_memory
        self.trace = trace
        self.priority = priority  # in a dynamic batcher's queue; BLS has no way to set it


DEFAULT_OPTIONS = Options()
