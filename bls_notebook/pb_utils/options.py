"""`Options`: what a request carries beside its tensors."""

from __future__ import annotations

from dataclasses import dataclass

from .memory import PreferredMemory
from .trace import InferenceTrace

__all__ = ["DEFAULT_OPTIONS", "Options"]


@dataclass(slots=True, eq=False, repr=False)
class Options:
    """What a request carries beside its tensors; shared by requests, replaced and never changed."""

    request_id: str = ""
    correlation_id: int | str = 0
    flags: int = 0
    timeout: int = 0
    parameters: str = "{}"
    preferred_memory: PreferredMemory | None = None
    trace: InferenceTrace | None = None
    priority: int = 0  # in a dynamic batcher's queue; BLS has no way to set it


DEFAULT_OPTIONS = Options()
