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
    """Return black or white, whichever reads better on ``#rrggbb``, on a light page and on a dark one.

    A dark page turns the whole figure over (`display.svg`): black becomes white, and the colour another.
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
