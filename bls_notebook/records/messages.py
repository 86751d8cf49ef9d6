"""Records of messages to the user, and of models' log lines."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Record

LEVELS = ("verbose", "info", "warning", "error")
"""Triton's log levels, from the least to the most severe."""


@dataclass(frozen=True, slots=True, repr=False)
class MessageRecord(Record):
    """A one-line message to the user; `kind` is done, info, warning or error."""

    text: str
    kind: str = "done"
    hint: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True, repr=False)
class LogLine(Record):
    """A message that a model logged with `pb_utils.Logger`.

    `model` is ``notebook`` for code in cells such as ``%%bls``. `background` is true if the message came from a thread
    that belongs to no known cell.
    """

    level: str
    model: str
    message: str
    file: str = ""
    line: int = 0
    background: bool = False
