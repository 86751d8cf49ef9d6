"""Where a person wrote a model's source: a cell, whose file debuggers know by a name of its own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SourcePlace:
    """Where source was written."""

    file: str  # what debuggers and tracebacks call the file; breakpoints are set in it
    label: str  # what it is called where a person reads it
    line: int = 1  # of that file, where the source begins
    text: str | None = None  # what is run in place of the source, if anything is

    def numbered(self, source: str) -> str:
        """Return the source with its lines numbered as they are in the file."""
        return "\n" * (self.line - 1) + (source if self.text is None else self.text)
