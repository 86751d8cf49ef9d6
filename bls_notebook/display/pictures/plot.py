"""A pen that draws with matplotlib, for figures to work on and for paper; imported when one is wanted."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bls_notebook.display.pictures.pen import INK, Box, Look, Points, times
from bls_notebook.records.visible import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH, _INCH = 960.0, 96.0  # px
_POINT = 72 / _INCH


class PlotPen:
    """Draws a picture with so many pixels to the left and right of its time axis, which lasts `end` ns."""

    def __init__(self, end: float, left: float, right: float) -> None:
        self.ticks = list(times(end))
        self.end, self.plot = end, _WIDTH - left - right
        self._left, self._right = left, right
        self._calls: list[Any] = []

    def boxes(self, boxes: Iterable[Box], look: Look) -> None:
        corners = [[(x, y), (x + w, y), (x + w, y + h), (x, y + h)] for x, y, w, h in boxes]
        self._polygons(corners, look)

    def area(self, points: Points, look: Look) -> None:
        self._polygons([list(points)], look, seam=False)

    def _polygons(self, corners: list[list[tuple[float, float]]], look: Look, seam: bool = True) -> None:
        from matplotlib.collections import PolyCollection

        given: dict[str, Any] = {"facecolor": look.colour, "edgecolor": "white", "linewidth": 0.6 * seam}
        if look.edge:
            given |= {"facecolor": "none", "edgecolor": look.colour, "linewidth": 1.2}
        if look.hatch:
            given |= {"facecolor": "none", "edgecolor": look.colour, "linewidth": 0, "hatch": look.hatch * 6}
        given |= {"hatch": look.over} if look.over else {}
        self._later(
            lambda axes: axes.add_collection(
                PolyCollection(corners, alpha=look.alpha, **given), autolim=False
            )
        )

    def stems(self, stems: Iterable[tuple[float, float, float]], look: Look, width: float = 0.8) -> None:
        found = list(stems)
        if found:
            x, top, bottom = zip(*found, strict=True)
            self._later(
                lambda axes: axes.vlines(x, top, bottom, color=look.colour, linewidth=width, alpha=look.alpha)
            )

    def line(self, points: Points, look: Look, width: float = 1.2) -> None:
        x, y = zip(*points, strict=True) if points else ((), ())
        self._later(lambda axes: axes.plot(x, y, color=look.colour, linewidth=width, alpha=look.alpha))

    def marks(self, points: Points, shape: str, look: Look, size: float = 6) -> None:
        shift = {"v": -0.4, "^": 0.4, ">": 0.0}[shape] * size
        found = [(x, y + shift) for x, y in points]
        x, y = zip(*found, strict=True) if found else ((), ())
        given = {"marker": shape, "markersize": size * _POINT, "linestyle": "", "clip_on": False}
        self._later(lambda axes: axes.plot(x, y, color=look.colour, alpha=look.alpha, **given))

    def chip(self, right: float, top: float, width: float, height: float, look: Look) -> None:
        scale = self.end / self.plot
        self.boxes([(right * scale, top, width * scale, height)], look)

    def words(
        self, text: str, x: float, y: float, *, right: float = 0, align: str = "start", size: float = 11,
        colour: str = INK, bold: bool = False, halo: bool = False,
    ) -> None:  # fmt: skip
        """Write text, never read as a formula."""
        given = {"ha": {"start": "left", "end": "right"}.get(align, "center"), "va": "center"}
        look = {"fontsize": size * _POINT, "color": colour, "fontweight": "bold" if bold else "normal"}
        place = {"xycoords": "data", "xytext": (right * _POINT, 0), "textcoords": "offset points"}
        always: dict[str, Any] = {"annotation_clip": False, "parse_math": False}
        if halo:
            always["bbox"] = {
                "boxstyle": "square,pad=0.1",
                "facecolor": "white",
                "linewidth": 0,
                "alpha": 0.85,
            }
        self._later(lambda axes: axes.annotate(drawn(text), (x, y), **place, **given, **look, **always))

    def _later(self, call: Any) -> None:
        self._calls.append(call)

    def figure(self, height: float, bottom: float) -> Figure:
        """Return the picture as a figure of a height in pixels; the lines of times end at `bottom`."""
        with drawing():
            from matplotlib.figure import Figure

            figure = Figure(figsize=(_WIDTH / _INCH, height / _INCH), facecolor="white")
            axes = figure.add_axes((self._left / _WIDTH, 0, self.plot / _WIDTH, 1))
            axes.set_xlim(0, self.end)
            axes.set_ylim(height, 0)
            axes.set_axis_off()
            axes.vlines([x for x, _ in self.ticks], 0, bottom, color="#e6e8eb", linewidth=0.7, zorder=-1)
            for call in self._calls:
                call(axes)
            for patch in (*axes.collections, *axes.lines):
                patch.set_clip_on(False)
            return figure


@contextmanager
def drawing() -> Iterator[None]:
    """Make figures in here: by matplotlib's defaults, not the notebook's settings, and equal in every run."""
    import matplotlib

    fixed = {
        "font.family": ["DejaVu Sans"],  # comes with matplotlib: the same widths everywhere
        "hatch.linewidth": 0.7,
        "svg.fonttype": "path",
        "svg.hashsalt": "bls_notebook",
    }
    # Not the backend, which would be loaded, nor what is deprecated.
    kept = {"backend", "backend_fallback", "interactive", "toolbar", "timezone", "webagg.open_in_browser"}
    defaults = {key: value for key, value in matplotlib.rcParamsDefault.items() if key not in kept}
    with matplotlib.rc_context({**defaults, **fixed}):
        yield


def drawn(text: str) -> str:
    """Return text as a figure can show it: one line, and U+FFFD for what the font does not have."""
    shown = visible(text)
    return shown if shown.isascii() else "".join(c if ord(c) in _font() else "\ufffd" for c in shown)


@functools.cache
def _font() -> frozenset[int]:
    from matplotlib import font_manager, ft2font

    return frozenset(ft2font.FT2Font(font_manager.findfont("DejaVu Sans")).get_charmap())
