"""The small pieces of what is seen of a tensor: figures in a line, pictures, sounds, bars of a histogram."""

from __future__ import annotations

import re

from bls_notebook.display.document import Piece
from bls_notebook.display.html import Html, join, tag
from bls_notebook.display.palette import LINE
from bls_notebook.records.repository import Figures, Media

from .pictures.svg_pen import picture_html

_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_HEIGHTS = "▁▂▃▄▅▆▇█"


def number(value: float | None) -> str:
    """Spell a number in about six characters; whole ones in full."""
    if value is None:
        return "none"
    return f"{value:d}" if isinstance(value, int) else f"{value:.4g}"


def figures_piece(figures: Figures | None) -> Piece:
    """Say what the figures of a tensor are: least to greatest, the mean, and what needs attention."""
    if figures is None:
        return Piece("", Html())
    said = f"{number(figures.least)} to {number(figures.greatest)}, mean {number(figures.mean)}"
    said = said if figures.least is not None else "no finite number"
    bad = [f"{n:,} {what}" for n, what in ((figures.nans, "NaN"), (figures.infinities, "Inf")) if n]
    of = f"1/{figures.every:,} seen" if figures.every > 1 else ""
    shown = [tag("span", words, cls="seen-bad") for words in bad]
    inside = join(said, *shown, tag("span", of, cls="dim") if of else "", by=" ")
    return Piece(" ".join(filter(None, [said, *bad, of])), tag("span", inside, cls="seen-figures"))


def media_html(media: Media, side: int, name: str) -> Html:
    """Show a picture, its longer side of so many pixels, or a sound; nothing that is neither."""
    if not _BASE64.fullmatch(media.data):
        return Html()
    source = f"data:{media.kind};base64,{media.data}"
    if media.kind == "audio/wav":
        return tag("audio", controls="", preload="metadata", src=source, cls="seen-sound", **{"aria-label": name})
    if media.kind not in _PICTURES:
        return Html()
    longest = max(media.width, media.height, 1)
    scale = side / longest
    known = media.width > 0 and media.height > 0
    wide, high = (max(1, round(media.width * scale)), max(1, round(media.height * scale))) if known else (None, side)
    words = f"{name}: {media.width}×{media.height}, {media.said}" if known else name
    pixels = "seen-pixels" if known and scale >= 2 else ""
    shown = tag(
        "img", src=source, alt=words, title=words, width=wide, height=high, cls=f"seen-picture {pixels}".strip()
    )
    return Html(shown.removesuffix("</img>"))


def sparks(counts: tuple[int, ...]) -> str:
    """Draw counts as a line of blocks."""
    top = max(counts, default=0)
    return "".join(_HEIGHTS[round(7 * n / top)] if n else " " for n in counts) if top > 0 else ""


def bars(counts: tuple[int, ...], titles: tuple[str, ...] = ()) -> Html:
    """Draw counts as bars."""
    top = max(counts, default=0)
    if top <= 0:
        return Html()
    shown = (
        tag("span", style=f"height:{100 * max(n, 0) / top if n <= 0 else max(100 * n / top, 2):.1f}%",
            title=titles[i] if i < len(titles) else None)
        for i, n in enumerate(counts)
    )  # fmt: skip
    return tag("div", *shown, cls="seen-bars")


def line_html(line: tuple[tuple[float, float], ...], height: int = 72) -> Html:
    """Draw a row of numbers by the least and the greatest of its pieces."""
    low, high = min(pair[0] for pair in line), max(pair[1] for pair in line)
    scale = (height - 2) / (high - low) if 0 < high - low < float("inf") else 0.0
    middle = height / 2

    def y(value: float) -> str:
        return f"{height - 1 - (value - low) * scale if scale else middle:.1f}"

    path = "".join(f"{'L' if i else 'M'}{i} {y(top)}L{i} {y(bottom)}" for i, (bottom, top) in enumerate(line))
    wide = max(1, len(line) - 1)
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{height}">'
        f'<svg width="100%" height="{height}" viewBox="0 0 {wide} {height}" preserveAspectRatio="none">'
        f'<path d="{path}" fill="none" stroke="{LINE.light}" stroke-width="1.2" '
        f'vector-effect="non-scaling-stroke" stroke-linejoin="round"/></svg></svg>'
    )
    return picture_html(picture, f"from {number(low)} to {number(high)}")
