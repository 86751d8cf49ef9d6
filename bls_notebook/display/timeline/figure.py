"""The timeline as a figure, for notebooks that are seen without a kernel, and for paper.

As in the widget: a lane an instance, queued requests hatched above it, lines from callers to callees. One or
two sessions share the time axis. Sizes are inches, so that text never runs into text whatever the number of
lanes; what would be narrower than a dot is drawn together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bls_notebook.display.html import Html
from bls_notebook.display.palette import model_inks
from bls_notebook.display.svg import drawing, figure_html, figure_svg
from bls_notebook.display.timeline.figure_lanes import Panel, draw_panel
from bls_notebook.display.timeline.figure_legend import LEGEND, draw_legend
from bls_notebook.display.timeline.figure_parts import LEFT, PLOT, WIDTH
from bls_notebook.display.timeline.lanes import lay_out
from bls_notebook.display.units import count, duration
from bls_notebook.observe.analysis.critical_path import Step
from bls_notebook.observe.records.session import Session

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["timeline_alt", "timeline_figure", "timeline_picture", "timeline_svg"]

_TOP, _AXIS = 0.04, 0.3  # inches

Critical = Sequence[Iterable[Step]]


def timeline_figure(
    session: Session, other: Session | None = None, *, critical: Critical | None = None
) -> Figure:
    """Draw one session, or two on one axis, with matplotlib.

    Parameters
    ----------
    session, other : Session
        The other one is drawn below, on the same scale.
    critical : sequence of (iterable of Step), optional
        The critical path of each session, to be lit.

    Returns
    -------
    matplotlib.figure.Figure
        10 inches wide; as high as its lanes need.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    with drawing():
        return _figure([session] if other is None else [session, other], critical)


def timeline_svg(session: Session, other: Session | None = None, *, critical: Critical | None = None) -> str:
    """Draw `timeline_figure` as an SVG document: equal sessions give equal text."""
    return figure_svg(timeline_figure(session, other, critical=critical))


def timeline_picture(
    session: Session, other: Session | None = None, *, critical: Critical | None = None
) -> Html:
    """Draw `timeline_figure` for a display, whose stylesheet has to have ``figure``."""
    return figure_html(timeline_svg(session, other, critical=critical), timeline_alt(session, other))


def timeline_alt(session: Session, other: Session | None = None) -> str:
    """Say in words what the figure shows."""
    said = []
    for record in [session] if other is None else [session, other]:
        served: dict[str, int] = {}
        for span in record.spans:
            served[span.model] = served.get(span.model, 0) + 1
        models = ", ".join(f"{name} {number:,}" for name, number in sorted(served.items())[:12])
        name = f"{record.name}: " if record.name else ""
        said.append(
            f"{name}{count(len(record.spans), 'request')} in {duration(record.wall / 1e9)} ({models})"
        )
    return f"Timeline. {'. '.join(said)}."


def _figure(sessions: Sequence[Session], critical: Critical | None) -> Figure:
    from matplotlib.figure import Figure

    inks = model_inks({span.model for session in sessions for span in session.spans})
    panels: list[Panel] = []
    height = _TOP
    for number, session in enumerate(sessions):
        panel = Panel.of(session, lay_out(session), height, titled=len(sessions) > 1, number=number)
        panels.append(panel)
        height += panel.height
    whole = height + _AXIS + LEGEND
    figure = Figure(figsize=(WIDTH, whole), facecolor="white")
    axes: Any = figure.add_axes((LEFT / WIDTH, 1 - height / whole, PLOT / WIDTH, height / whole))
    end = max((session.wall for session in sessions), default=0) or 1
    axes.set_xlim(0, end * 1.004)
    axes.set_ylim(height, 0)
    _frame(axes, end)
    for panel in panels:
        path = list(critical[panel.number]) if critical is not None else None
        draw_panel(axes, panel, inks, end, path)
    legend = figure.add_axes((LEFT / WIDTH, 0, PLOT / WIDTH, LEGEND / whole))
    draw_legend(legend, sessions, inks, lit=critical is not None)
    return figure


def _frame(axes: Any, end: int) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#bbbbbb")
    axes.set_yticks([])
    axes.set_axisbelow(True)
    axes.grid(axis="x", color="#e6e8eb", linewidth=0.7)
    factor, unit = next((f, u) for f, u in ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns")) if end >= f)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda ns, _: f"{ns / factor:g} {unit}"))
    axes.tick_params(axis="x", labelsize=8.5, color="#999999", labelcolor="#444444", length=3)
