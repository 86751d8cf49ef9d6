"""A line that a model logged."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.observe.records.plain import Record

__all__ = ["LEVELS", "LogLine"]

LEVELS = ("verbose", "info", "warning", "error")
"""Triton's levels, the least first."""


@dataclass(frozen=True, slots=True, repr=False)
class LogLine(Record):
    """A message that a model logged by `pb_utils.Logger`.

    ``model`` is ``notebook`` for code of the notebook that runs as a model. ``background`` says that it came
    from a thread of which nobody knows who started it.
    """

    level: str
    model: str
    message: str
    file: str = ""
    line: int = 0
    background: bool = False
