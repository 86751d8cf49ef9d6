"""Pictures of a tensor's values: a histogram as text or bars, and a curve."""

from __future__ import annotations

from bls_notebook.display.html import Html, tag
from bls_notebook.display.palette import LINE
from bls_notebook.display.parts import number
from bls_notebook.display.svg import picture_html

_HEIGHTS = "▁▂▃▄▅▆▇█"


def sparks(counts: tuple[int, ...]) -> str:
    """Draw counts as one line of block characters."""
    top = max(counts, default=0)
    return "".join(_HEIGHTS[round(7 * n / top)] if n else " " for n in counts) if top > 0 else ""


def bars(counts: tuple[int, ...], titles: tuple[str, ...] = ()) -> Html:
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
    """Draw a curve from the least and greatest value of each of its segments."""
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
