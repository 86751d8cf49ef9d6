"""Many rows for the browser as bytes, a column after the other: quicker and smaller than JSON."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bls_notebook.records.visible_text import visible

_TYPES = {"f8": "d", "f4": "f", "u4": "I", "i4": "i", "u2": "H", "u1": "B"}


def pack_columns(columns: Mapping[str, tuple[str, Any]]) -> tuple[bytes, list[tuple[str, str, int, int]]]:
    """Put columns of numbers into one piece of bytes, little-endian; return it, and where each column is in
    it.

    Each name has the type of its numbers (f8, f4, u4, i4, u2 or u1) and the numbers; of type n are whole
    numbers that get the narrowest type which has room for all of them. The layout, (name, type, offset,
    count), is what ``columns`` in ``widgets/common.js`` asks for: each begins at a multiple of 8, so that the
    browser needs no copy.
    """
    data = bytearray()
    layout: list[tuple[str, str, int, int]] = []
    for name, (given, numbers) in columns.items():
        kind = given
        if given == "n":
            numbers = np.asarray(numbers if hasattr(numbers, "__len__") else list(numbers), np.float64)
            kind = _narrowest(numbers)
        if isinstance(numbers, np.ndarray):
            column: Any = numbers.astype(f"<{kind}")
        else:
            column = array(_TYPES[kind], numbers)
            if sys.byteorder == "big":
                column.byteswap()
        data += bytes(-len(data) % 8)
        layout.append((name, kind, len(data), len(column)))
        data += column.tobytes()
    return bytes(data), layout


def _narrowest(numbers: Any) -> str:
    low, high = numbers.min(initial=0), numbers.max(initial=0)
    if low < 0:
        return "i4" if low >= -(1 << 31) and high < 1 << 31 else "f8"
    return next((f"u{size}" for size in (1, 2, 4) if high < 1 << 8 * size), "f8")


class Names:
    """Numbers for texts, in the order in which they come: a column has the numbers, each text goes once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def of(self, texts: Iterable[str]) -> list[int]:
        """Return the numbers of texts."""
        numbers = self.numbers
        return [numbers.setdefault(text, len(numbers)) for text in texts]

    @property
    def shown(self) -> list[str]:
        """The texts, made visible, by their number."""
        return [visible(text) for text in self.numbers]
