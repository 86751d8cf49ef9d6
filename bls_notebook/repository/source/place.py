"""Where a person wrote a model's source: a cell, whose file debuggers know by a name of its own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SourcePlace:
    """Where source was written.

    Attributes
    ----------
    file : str
        What debuggers and tracebacks call the file; breakpoints are set in it.
    label : str
        What it is called where a person reads it.
    line : int
        Number of the line in that file where the source begins.
    text : str or None
        What is run in place of the source, if anything is.
    """

    file: str
    label: str
    line: int = 1
    text: str | None = None

    def numbered(self, source: str) -> str:
        """Return the source with its lines numbered as they are in the file."""
        return "\n" * (self.line - 1) + (source if self.text is None else self.text)
