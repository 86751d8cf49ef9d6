"""Which lines of code made what was there together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bls_notebook.records.plain import Record
from bls_notebook.records.seen import NOWHERE, CodeLine

from .lives import Life


@dataclass(frozen=True, slots=True, repr=False)
class LineBytes(Record):
    """What one line of a model's code has made of some blocks: ``bytes`` in so many ``blocks``.

    An empty ``model`` is the notebook. Where no line made them, ``what`` says why they are there.
    """

    model: str
    line: CodeLine = NOWHERE
    what: str = ""
    bytes: int = 0
    blocks: int = 0
    tensors: tuple[str, ...] = ()


def by_line(lives: Iterable[Life]) -> tuple[LineBytes, ...]:
    """Return what made some blocks, by lines of code; the largest first."""
    found: dict[tuple[str, str, int, str], list[Life]] = {}
    for life in lives:
        if life.bytes:
            key = life.maker.model, life.line.file, life.line.line, _what(life)
            found.setdefault(key, []).append(life)
    lines = [
        LineBytes(
            lives[0].maker.model,
            lives[0].line,
            _what(lives[0]),
            sum(life.bytes for life in lives),
            len(lives),
            tuple(dict.fromkeys(life.tensor for life in lives if life.tensor)),
        )
        for lives in found.values()
    ]
    return tuple(sorted(lines, key=lambda each: (-each.bytes, each.model, each.line.line)))


def _what(life: Life) -> str:
    if life.line.line:
        return ""
    if life.how == "new":
        return "line not known"
    return "inputs moved to it" if life.how == "transfer" else "copies of inputs"
