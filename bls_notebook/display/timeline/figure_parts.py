"""What the parts of the timeline's figure share: its sizes, its inks, its text."""

from __future__ import annotations

from typing import Any

from bls_notebook.display.svg import drawn

__all__ = ["DIM", "INK", "LEFT", "PLOT", "WIDTH", "readable", "width_of", "write"]

WIDTH, LEFT, PLOT = 10.0, 1.75, 8.0  # inches: of the figure, left of its time axis, and of that
INK, DIM = "#222222", "#666666"


def write(axes: Any, text: str, at: tuple[float, float], shift: tuple[float, float], **look: Any) -> None:
    """Write text that is never read as a formula, `shift` points away from a point of the data."""
    given = {"va": "center", "fontsize": 8.5, "color": INK, "annotation_clip": False, **look}
    axes.annotate(
        drawn(text), at, xycoords="data", xytext=shift, textcoords="offset points", parse_math=False, **given
    )


def width_of(text: str, points: float = 8.5) -> float:
    """Return how many inches a text takes, roughly, and never fewer than it does."""
    return len(text) * points * 0.0086


def readable(colour: str) -> str:
    """Return black or white, whichever reads better on ``#rrggbb``."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    light = 0.2126 * r + 0.7152 * g + 0.0722 * b
    return "#111111" if (light + 0.05) ** 2 > 1.05 * 0.05 else "#ffffff"  # as WCAG counts contrast
