"""What changed in a file of a model from one definition to the next."""

from __future__ import annotations

from dataclasses import dataclass

from .plain import Record


@dataclass(frozen=True, slots=True, repr=False)
class Change(Record):
    """A file that changed: how many lines came and went, and these with their neighbours.

    Each of ``lines`` is a sign and a text: ``+`` came, ``-`` went, a space stayed, ``…`` stands for a gap.
    ``numbers`` are theirs in the file as it was, 0 for what came; none where they are not told.
    """

    file: str
    added: int = 0
    removed: int = 0
    lines: tuple[tuple[str, str], ...] = ()
    numbers: tuple[int, ...] = ()
