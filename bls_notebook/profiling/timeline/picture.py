"""The timeline as a picture, for notebooks that are seen without a kernel, and for paper.

As in the widget: a lane an instance, queued requests hatched above it, lines from callers to callees. One or
two sessions share the time axis. What would be narrower than a dot is drawn together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from bls_notebook.display.html import Html
from bls_notebook.display.palette import ALARM, model_inks
from bls_notebook.display.pictures.pen import DIM, Look, Pen, legend_signs, width_of
from bls_notebook.display.pictures.svg import SvgPen, picture_html
from bls_notebook.display.text import clip
from bls_notebook.display.units import count, duration
from bls_notebook.profiling.analysis.cells.lock_waits import lock_waits
from bls_notebook.profiling.analysis.critical_path import Step
from bls_notebook.profiling.records.session import Session

from .lanes import lay_out
from .panel import LOCK, draw_panel, lane_words
from .places import PICTURE, Panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RIGHT = 26.0  # px right of the time axis
_AXIS = 22.0
_MODELS = 8

Critical = Sequence[Iterable[Step]]
AnyPen = TypeVar("AnyPen", bound=Pen)


def timeline_figure(*sessions: Session, critical: Critical | None = None) -> Figure:
    """Draw a session, or several below each other on the same scale, with matplotlib: 10 inches wide.

    ``critical`` are the critical paths to be lit. An ImportError where matplotlib is not installed.
    """
    from bls_notebook.display.pictures.plot import PlotPen

    pen, height, bottom = _draw(PlotPen, sessions, critical)
    return pen.figure(height, bottom)


def timeline_svg(*sessions: Session, critical: Critical | None = None) -> str:
    """Draw the same as an SVG document, as wide as there is room: equal sessions give equal text."""
    pen, height, bottom = _draw(SvgPen, sessions, critical)
    return pen.document(height, bottom)


def timeline_picture(*sessions: Session) -> Html:
    """Draw `timeline_svg` for a display, whose stylesheet has to have ``figure``."""
    return picture_html(timeline_svg(*sessions), timeline_alt(*sessions))


def timeline_alt(*sessions: Session) -> str:
    """Say in words what the picture shows."""
    said = []
    for record in sessions:
        served = Counter(span.model for span in record.spans)
        models = ", ".join(f"{name} {number:,}" for name, number in sorted(served.items())[:12])
        name = f"{record.name}: " if record.name else ""
        took = duration(record.wall / 1e9)
        said.append(f"{name}{count(len(record.spans), 'request')} in {took} ({models})")
    return f"Timeline. {'. '.join(said)}."


def _draw(
    make: Callable[[float, float, float], AnyPen], sessions: Sequence[Session], critical: Critical | None
) -> tuple[AnyPen, float, float]:
    """Draw everything, and say how high it is, and how far down the lines of the time axis go."""
    layouts = [lay_out(session) for session in sessions]
    names = [width_of(clip(session.name, 18), 13) for session in sessions] if len(sessions) > 1 else []
    labels = [width_of(lane_words(lane)) for layout in layouts for lane in layout.lanes]
    pen = make(max(session.wall for session in sessions) or 1, 27 + max([56.0, *names, *labels]), _RIGHT)
    inks = model_inks({"", *(span.model for session in sessions for span in session.spans)})
    height = 4.0
    for number, (session, layout) in enumerate(zip(sessions, layouts, strict=True)):
        panel = Panel.of(session, layout, height, PICTURE, titled=len(sessions) > 1, number=number)
        draw_panel(pen, panel, inks, list(critical[number]) if critical is not None else None)
        height += panel.height
    for x, words in pen.ticks:
        pen.words(words, x, height + 8, align="middle" if x else "start", size=10, colour="#555555")
    return pen, legend_signs(pen, height + _AXIS, _signs(sessions, inks, critical is not None)), height


def _signs(sessions: Sequence[Session], inks: dict[str, Any], lit: bool) -> list[tuple[Look | str, str]]:
    """What the colours and signs mean: only what is in the picture."""
    spans = [span for session in sessions for span in session.spans]
    signs: list[tuple[Look | str, str]] = [
        (Look(inks[name].light, over=inks[name].hatch), clip(name, 22))
        for name in sorted(filter(None, inks))[:_MODELS]
    ]
    if any(span.queued < span.started for span in spans):
        signs.append((Look(DIM, hatch="/"), "queued"))
    if spans:
        signs.append((Look("#b5b5b5", 0.5), "its calls run"))
    if any(lock_waits(session) for session in sessions):
        signs.append((Look(DIM, hatch=LOCK), "turns on Python's lock (GIL)"))
    if any(session.ghosts for session in sessions):
        signs.append((Look(DIM, edge=True), "could have run here"))
    if any(span.marks for span in spans):
        signs.append(("▾", "a response"))
    if any(span.state == "error" for span in spans):
        signs.append((Look(ALARM.light, edge=True), "error"))
    return [*signs, ("━", "critical path")] if lit else signs
