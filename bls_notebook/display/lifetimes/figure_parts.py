"""What both parts of the figure use: its inks, its text, its frame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bls_notebook.display.pictures.matplotlib_parts import drawn

__all__ = ["DIM", "INK", "LEFT_BEHIND", "PLOT", "WIDTH", "area", "bare", "width_of", "write"]

WIDTH, PLOT = 10.0, 6.4  # inches: of the figure, and of its time axis
INK, DIM, LEFT_BEHIND = "#222222", "#666666", "#b34700"


def write(
    axes: Any, text: str, at: tuple[float, float], place: Any, shift: tuple[float, float], **look: Any
) -> None:
    """Write text that is never read as a formula, `shift` points away from `at`; it may leave the axes."""
    given = {"va": "center", "fontsize": 8.5, "color": INK, "annotation_clip": False, **look}
    axes.annotate(
        drawn(text), at, xycoords=place, xytext=shift, textcoords="offset points", parse_math=False, **given
    )


def width_of(text: str, points: float = 8.5) -> float:
    """Return how many inches a text takes, roughly, and never fewer than it does."""
    return len(text) * points * 0.0086


def bare(axes: Any) -> None:
    """Leave of the frame only the line below; light lines for the times go through."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#bbbbbb")
    axes.set_yticks([])
    axes.set_axisbelow(True)
    axes.grid(axis="x", color="#e3e5e8", linewidth=0.7)


def area(axes: Any, steps: Iterable[tuple[float, float]], base: float, end: int, **look: Any) -> None:
    """Fill between a base and steps (from, height), each until the next; in no more points than it takes."""
    xs: list[float] = []
    ys: list[float] = []
    height = base
    for x, y in steps:
        if y != height:
            xs += [x, x]
            ys += [height, y]
            height = y
    if xs:
        axes.fill([*xs, end, end], [*ys, height, base], linewidth=0, **look)
