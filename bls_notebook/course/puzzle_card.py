"""The card of a solved puzzle: a picture with the solver's own timeline and figures."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path

from bls_notebook.display import DIM, FONT, INK, clip
from bls_notebook.profiling.session import Session
from bls_notebook.profiling.timeline.picture import timeline_svg
from bls_notebook.records import BLSError, visible

_WIDTH, _HEAD, _FOOT, _EDGE = 760, 96, 46, 24
_GREEN = "#1a7f37"


def card_svg(above: str, title: str, facts: str, session: Session) -> str:
    """Return a card. It is white with an edge, so that it is readable on any page."""
    timeline = timeline_svg(session)
    high = float(timeline.partition('height="')[2].partition('"')[0])
    height = _HEAD + high + _FOOT
    inside = f'x="{_EDGE}" y="{_HEAD}" width="{_WIDTH - 2 * _EDGE}" height="{high:g}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height:g}" '
        f'viewBox="0 0 {_WIDTH} {height:g}" font-family="{FONT}" fill="{INK}" role="img" '
        f'aria-label="{_said(title)}: solved with {_said(facts)}">'
        f'<rect x=".5" y=".5" width="{_WIDTH - 1}" height="{height - 1:g}" rx="12" fill="#fff" stroke="#d0d7de"/>'
        + _words(above, 32, 12, DIM)
        + _words(clip(title, 60), 62, 24, INK, 'font-weight="600"')
        # A path, because few fonts have a check mark, and resvg takes one font for the whole line.
        + f'<path d="M{_EDGE + 1} 81.5l3.5 3.5 6.5-9" fill="none" stroke="{_GREEN}" stroke-width="2"/>'
        + _words(f"Solved with {facts}", 86, 14, _GREEN, 'dx="17" font-weight="600"')
        + f"<svg {inside}>{timeline}</svg>"
        + _words("bls_notebook: Triton Business Logic Scripting in a notebook", height - 18, 11, DIM)
        + "</svg>\n"
    )


def card_encoder(file: str | Path) -> Callable[[str], bytes]:
    """Return the function that makes the bytes of a file from a card: PNG if its name ends with .png, else SVG."""
    if Path(file).suffix.lower() != ".png":
        return str.encode
    try:
        import resvg_py
    except ImportError:
        raise BLSError(
            f"--card: {Path(file).name}: a PNG needs resvg-py, which is not installed: "
            'pip install "bls_notebook[png]"; or use a name that ends with .svg'
        ) from None
    return lambda card: bytes(resvg_py.svg_to_bytes(svg_string=card, zoom=2))


def _words(text: str, y: float, size: int, colour: str, more: str = "") -> str:
    return f'<text x="{_EDGE}" y="{y:g}" font-size="{size}" fill="{colour}" {more}>{_said(text)}</text>'


def _said(text: str) -> str:
    return escape(visible(text))
