"""What pictures are drawn with: boxes, areas, stems, lines, marks and words, along one axis of time.

x is nanoseconds, y is pixels from the top. Words and chips are moved by pixels from where they belong, so
that they keep their size whatever the width of the picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

INK, DIM, LEFT_BEHIND = "#222222", "#666666", "#b34700"

Box = tuple[float, float, float, float]  # left, top, width, height
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Look:
    """How something is filled: with a colour, lines of it (``hatch``), or white lines on it (``over``)."""

    colour: str
    alpha: float = 1.0
    hatch: str = ""
    over: str = ""
    edge: bool = False  # the outline alone


class Pen(Protocol):
    """Draws one picture."""

    end: float  # of the axis, ns
    plot: float  # the narrowest that it is shown, px
    ticks: list[tuple[float, str]]  # of the axis, with what they say

    def boxes(self, boxes: Iterable[Box], look: Look) -> None:
        """Fill boxes."""

    def area(self, points: Points, look: Look) -> None:
        """Fill what is inside a line."""

    def stems(self, stems: Iterable[tuple[float, float, float]], look: Look, width: float = 0.8) -> None:
        """Draw upright lines: x, from y, to y."""

    def line(self, points: Points, look: Look, width: float = 1.2) -> None:
        """Draw a line from point to point."""

    def marks(self, points: Points, shape: str, look: Look, size: float = 6) -> None:
        """Draw triangles that point down (``v``), up (``^``) or to the right (``>``)."""

    def chip(self, right: float, top: float, width: float, height: float, look: Look) -> None:
        """Fill a box of a fixed size, so many pixels right of where the time begins."""

    def words(
        self, text: str, x: float, y: float, *, right: float = 0, align: str = "start", size: float = 11,
        colour: str = INK, bold: bool = False, halo: bool = False,
    ) -> None:  # fmt: skip
        """Write text around the height `y`, so many pixels right of `x`; a halo sets it off."""


def legend_signs(pen: Pen, top: float, signs: Iterable[tuple[Look | str, str]]) -> float:
    """Draw what colours and signs mean, in as many rows as it takes, and return where the last one ends."""
    x, y = 0.0, top + 10
    for look, text in signs:
        wide = 18 if isinstance(look, Look) else 12 * len(look)
        if x + wide + 6 + width_of(text) > pen.plot:
            x, y = 0.0, y + 17
        if isinstance(look, Look):
            pen.chip(x, y - 5, wide, 10, look)
        else:
            pen.words(look, 0, y, right=x, bold=True)
        pen.words(text, 0, y, right=x + wide + 6, colour="#444444")
        x += wide + 6 + width_of(text) + 10
    return y + 12


def steps_area(steps: Iterable[tuple[float, float]], base: float, end: float) -> list[tuple[float, float]]:
    """Return the outline between a base and steps (from, height), each until the next, in few points."""
    points = [(0.0, base)]
    height = base
    for x, y in steps:
        if y != height:
            points += [(x, height), (x, y)]
            height = y
    return [*points, (end, height), (end, base)]


def times(end: float) -> Iterator[tuple[float, str]]:
    """Give the round times of an axis, each as ns and in words."""
    factor, unit = next((f, u) for f, u in ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns")) if end >= f or f == 1)
    step = next(s * 10**e for e in range(-3, 20) for s in (1, 2, 5) if end / (s * 10**e) <= 8)
    for number in range(int(end / step) + 1):
        yield number * step, f"{number * step / factor:g} {unit}"


def width_of(text: str, size: float = 11) -> float:
    """Return how many pixels a text takes, roughly, and hardly ever fewer than it does."""
    return len(text) * size * 0.6


def readable(colour: str) -> str:
    """Return black or white, whichever reads better on ``#rrggbb``, on a light page and on a dark one.

    A dark page turns the whole picture over (`style`): black becomes white, and the colour another.
    """
    r, g, b = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    # invert(1) hue-rotate(180deg), as the CSS specification spells it.
    ri, gi, bi = 1 - r, 1 - g, 1 - b
    over = (
        -0.574 * ri + 1.43 * gi + 0.144 * bi,
        0.426 * ri + 0.43 * gi + 0.144 * bi,
        0.426 * ri + 1.43 * gi - 0.856 * bi,
    )
    light, dark = _luminance(r, g, b) + 0.05, _luminance(*over) + 0.05
    black = min(light / 0.05, 1.05 / dark)
    white = min(1.05 / light, dark / 0.05)
    return "#111111" if black > white else "#ffffff"


def _luminance(*rgb: float) -> float:
    """As WCAG counts contrast."""
    r, g, b = (min(max(part, 0.0), 1.0) for part in rgb)
    r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (r, g, b))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
