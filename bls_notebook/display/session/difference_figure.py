"""Two sessions compared, as a picture: for each model the middle half of its requests, before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bls_notebook.display.html import Html
from bls_notebook.display.palette import ALARM, model_inks
from bls_notebook.display.pictures.matplotlib_parts import drawing, drawn, figure_html, figure_svg
from bls_notebook.display.session.difference import by_time
from bls_notebook.display.session.words import factor, ns
from bls_notebook.display.text import clip
from bls_notebook.observe.analysis.difference import Change, Difference
from bls_notebook.observe.analysis.quartiles import Quartiles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["difference_alt", "difference_figure", "difference_picture"]

_MOST = 30  # rows
_GREY = "#8a8a8a"
_FAINT = "#d9d9d9"
_GREEN = "#007a59"


def difference_figure(difference: Difference) -> Figure:
    """Draw what changed from one session to another; needs matplotlib.

    Parameters
    ----------
    difference : Difference

    Returns
    -------
    matplotlib.figure.Figure
        A pair of bars for each model, from the first to the third quartile of its requests' times with the
        median marked, grey before and in the model's colour after; those that took longest first.
    """
    with drawing():
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter, NullFormatter

        models = by_time(difference.models)[:_MOST]
        figure = Figure(figsize=(8.4, 0.75 + 0.52 * max(len(models), 1)), layout="constrained")
        axes = figure.add_subplot()
        inks = model_inks(m.name for m in models)
        for at, model in enumerate(models):
            _bar(axes, at - 0.17, model.duration.before, _GREY)
            _bar(axes, at + 0.17, model.duration.after, inks[model.name].light)
            _say(axes, at, model.duration)
        axes.set_yticks(range(len(models)), [drawn(clip(m.name, 28)) for m in models])
        axes.set_ylim(len(models) - 0.45, -0.55)
        axes.set_xscale("log")
        shown = [c for m in models for c in (m.duration.before, m.duration.after) if c.count]
        low = min((max(c.q1, 1.0) for c in shown), default=1e3)
        high = max((max(c.q3, 1.0) for c in shown), default=1e6)
        axes.set_xlim(low / 1.35, high * 1.35 * (high / low) ** 0.32)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: ns(x)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.tick_params(which="both", length=0, labelsize=9)
        axes.tick_params(axis="x", colors="#555555", labelsize=8)
        axes.grid(axis="x", color=_FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[:].set_visible(False)
        before, after = difference.before or "before", difference.after or "after"
        axes.set_title(
            drawn(f"time of a request: {clip(before, 30)} (grey), then {clip(after, 30)} (coloured)"),
            loc="left", fontsize=9.5, color="#333333",
        )  # fmt: skip
        return figure


def difference_picture(difference: Difference) -> Html:
    """Return the picture for `difference_html`; needs matplotlib."""
    return figure_html(figure_svg(difference_figure(difference)), difference_alt(difference))


def difference_alt(difference: Difference) -> str:
    """Say what the picture shows."""
    said = [
        f"{m.name} {ns(m.duration.before.median)} to {ns(m.duration.after.median)}"
        for m in difference.models
        if m.duration.verdict
    ]
    return "Median time of a request before and after: " + (", ".join(said) or "no model is in both")


def _bar(axes: Axes, at: float, spread: Quartiles, colour: str) -> None:
    if not spread.count:
        return
    low, high = max(spread.q1, 1.0), max(spread.q3, 1.0)
    axes.plot(
        [max(spread.least, 1.0), max(spread.most, 1.0)], [at, at], color=colour, linewidth=1, alpha=0.55,
        clip_on=True,
    )  # fmt: skip
    axes.barh(at, high - low, left=low, height=0.26, color=colour, alpha=0.75, linewidth=0)
    axes.plot([max(spread.median, 1.0)] * 2, [at - 0.16, at + 0.16], color=colour, linewidth=2.4)


def _say(axes: Axes, at: int, change: Change) -> None:
    words = {
        "faster": factor(change.factor),
        "slower": factor(change.factor),
        "same": "within the spread",
        "": "not in both",
    }
    colours = {"faster": _GREEN, "slower": ALARM.light}
    axes.annotate(
        words[change.verdict], (1.0, at), xycoords=("axes fraction", "data"), ha="right", va="center",
        fontsize=9, color=colours.get(change.verdict, "#666666"),
    )  # fmt: skip
