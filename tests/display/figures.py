"""Figures of matplotlib as text, so that two can be compared."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

from bls_notebook.display.pictures.plot import drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NO_DATE = {"Date": None, "Creator": None, "Format": None, "Type": None}
_COORDINATES = re.compile(r'(?<= d=")[^"]+')
_TOO_EXACT = re.compile(r"(\.\d\d)\d+")
_DOCUMENT = re.compile(r"<\?xml.*?(?=<svg)", re.DOTALL)


def figure_svg(figure: Figure) -> str:
    """Return a figure as an SVG document.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Made within `drawing`.

    Returns
    -------
    str
        An ``svg`` element without date or version: equal figures give equal text.
    """
    file = io.StringIO()
    with drawing():
        figure.savefig(file, format="svg", metadata=_NO_DATE)
    # A hundredth of a point is enough for every path, and much shorter.
    short = _COORDINATES.sub(lambda path: _TOO_EXACT.sub(r"\1", path[0]), file.getvalue())
    return _DOCUMENT.sub("", short, count=1)


def words_in(figure: Any) -> list[str]:
    """Return what is written in a figure."""
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]
