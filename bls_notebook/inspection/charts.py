"""Histograms of a tensor's values, as text and as bars."""

from __future__ import annotations

from bls_notebook.display.html import Html, tag

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
