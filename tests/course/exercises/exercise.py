"""Exercises of the course: where they are in the notebooks, right solutions, and wrong ones with their hints.

A solution is the notebook's own with replacements: pairs of the old and the new text. ``CHECK:`` before the old text
means the cell that checks.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

NOTEBOOKS = Path(__file__).resolve().parents[3] / "notebooks"
Changes = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Exercise:
    """An exercise: the cells before it, its solution, its check, another right solution, wrong ones with words of their
    hints, and more right ones. If the solution is in the cell that checks, `check` is empty. Cells are named by ids.
    """

    notebook: str
    before: tuple[str, ...]
    solution: str
    check: str
    right: Changes
    wrong: tuple[tuple[Changes, str], ...]
    rights: tuple[Changes, ...] = ()


def ch(*texts: str) -> Changes:
    """Return replacements from alternating old and new texts."""
    return tuple(zip(texts[::2], texts[1::2], strict=True))


def source(notebook: str, cell: str) -> str:
    """Return the source of a cell; ``cell:old:new`` replaces a name, ``+code`` is code."""
    if cell.startswith("+"):
        return cell[1:]
    name, *names = cell.split(":")
    cells = json.loads((NOTEBOOKS / f"{notebook}.ipynb").read_text(encoding="utf-8"))["cells"]
    text = "".join(next(c["source"] for c in cells if c["id"] == name))
    return re.sub(rf"\b{names[0]}\b", names[1], text) if names else text


def changed(text: str, changes: Changes, in_check: bool) -> str:
    for old, new in changes:
        if old.startswith("CHECK:") == in_check:
            old = old.removeprefix("CHECK:")
            assert old in text, old
            text = text.replace(old, new)
    return text
