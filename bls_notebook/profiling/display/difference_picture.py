"""Two sessions compared, as a picture: for each model the middle half of its requests, before and after."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log10
from typing import TYPE_CHECKING, TypeVar

from bls_notebook.display.html import Html
from bls_notebook.display.palette import ALARM, model_inks
from bls_notebook.display.pictures.pen import DIM, Look, Pen
from bls_notebook.display.pictures.svg import SvgPen, picture_html
from bls_notebook.display.text import clip
from bls_notebook.display.units import factor, ns
from bls_notebook.profiling.analysis.difference import Change, Difference, EdgeChange, ModelChange
from bls_notebook.records.quartiles import Quartiles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_Changed = TypeVar("_Changed", ModelChange, EdgeChange)
_MOST = 30  # rows
_TOP, _ROW, _LEFT, _RIGHT = 24.0, 44.0, 180.0, 140.0  # px
_GREY, _GREEN = "#8a8a8a", "#007a59"


def by_time(changes: Iterable[_Changed]) -> list[_Changed]:
    """Return models or calls in the order of their requests' times, the longest first."""
    return sorted(changes, key=lambda c: -max(c.duration.before.q3, c.duration.after.q3))


def difference_picture(difference: Difference) -> Html:
    """Draw what changed for a display whose styles have ``figure``.

    A pair of bars for each model, from the first to the third quartile of its requests' times with the median
    marked, grey before and in the model's colour after; those that took longest first.
    """
    pen = SvgPen(1.0, _LEFT, _RIGHT)
    return picture_html(pen.document(*_draw(pen, difference)), difference_alt(difference))


def difference_figure(difference: Difference) -> Figure:
    """Draw the same as `difference_picture` with matplotlib, which it needs."""
    from bls_notebook.display.pictures.plot import PlotPen

    pen = PlotPen(1.0, _LEFT, _RIGHT)
    return pen.figure(*_draw(pen, difference))


def difference_alt(difference: Difference) -> str:
    """Say what the picture shows."""
    said = [
        f"{m.name} {ns(m.duration.before.median)} to {ns(m.duration.after.median)}"
        for m in difference.models
        if m.duration.verdict
    ]
    return "Median time of a request before and after: " + (", ".join(said) or "no model is in both")


def _draw(pen: Pen, difference: Difference) -> tuple[float, float]:
    """Draw everything, and return how high it is, and how far down the lines of the axis go."""
    models = by_time(difference.models)[:_MOST]
    shown = [spread for m in models for spread in (m.duration.before, m.duration.after) if spread.count]
    axis = _LogAxis(shown)
    pen.ticks = axis.ticks
    inks = model_inks(m.name for m in models)
    before, after = clip(difference.before or "before", 24), clip(difference.after or "after", 24)
    pen.words(f"time of a request: {before} (grey), then {after} (coloured)", 0, 8, colour="#333333")
    y = _TOP
    for model in models:
        _bar(pen, axis, y + 6, model.duration.before, _GREY)
        _bar(pen, axis, y + 22, model.duration.after, inks[model.name].light)
        pen.words(clip(model.name, 26), 0, y + 20, right=-8, align="end")
        _say(pen, y + 20, model.duration)
        y += _ROW
    for x, words in pen.ticks:
        pen.words(words, x, y + 8, align="middle", size=10, colour="#555555")
    return y + 20, y


class _LogAxis:
    """Where times are on an axis from 0 to 1, each tenfold as wide as every other."""

    def __init__(self, shown: Sequence[Quartiles]) -> None:
        self._low = log10(min((max(spread.q1, 1.0) for spread in shown), default=1e3) / 1.35)
        self._high = log10(max((max(spread.q3, 1.0) for spread in shown), default=1e6) * 1.35)

    def at(self, time: float) -> float:
        place = (log10(max(time, 1.0)) - self._low) / (self._high - self._low)
        return min(max(place, 0.0), 1.0)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """The tens, or where there is hardly one of them, their halves and fifths too."""
        steps = (1,) if self._high - self._low > 2 else (1, 2, 5)
        powers = range(int(self._low), int(self._high) + 2)
        all_ = [log10(step) + power for power in powers for step in steps]
        return [(self.at(10**t), ns(10**t)) for t in all_ if self._low <= t <= self._high]


def _bar(pen: Pen, axis: _LogAxis, y: float, spread: Quartiles, colour: str) -> None:
    if not spread.count:
        return
    pen.line([(axis.at(spread.least), y + 6), (axis.at(spread.most), y + 6)], Look(colour, 0.55), 1)
    low, high = axis.at(spread.q1), axis.at(spread.q3)
    pen.boxes([(low, y, high - low, 12)], Look(colour, 0.75))
    pen.stems([(axis.at(spread.median), y - 2, y + 14)], Look(colour), 2.4)


def _say(pen: Pen, y: float, change: Change) -> None:
    told = {"same": "within the spread", "": "not in both"}.get(change.verdict) or factor(change.factor)
    colour = {"faster": _GREEN, "slower": ALARM.light}.get(change.verdict, DIM)
    pen.words(told, 1.0, y, right=10, colour=colour)
