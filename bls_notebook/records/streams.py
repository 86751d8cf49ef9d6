"""What is remembered of a whole stream of responses, where there are many streams."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import ErrorRecord
from .plain import Record


@dataclass(frozen=True, slots=True, repr=False)
class StreamRecord(Record):
    """One request that streamed: when its first and its last response came, in seconds since it was sent.

    ``responses`` counts those with outputs; ``text`` is what its pieces of text say together.
    """

    model: str
    version: int = 0
    index: int = 0
    responses: int = 0
    first: float | None = None
    last: float | None = None
    text: str = ""
    error: ErrorRecord | None = None
    warnings: tuple[str, ...] = ()
    stubs: tuple[str, ...] = ()
