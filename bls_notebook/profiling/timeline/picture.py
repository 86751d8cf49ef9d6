"""The timeline of one or two sessions as text and as a static picture, on one time axis. Pure.

As in the widget: a lane for each instance, queued requests hatched above it, lines from callers to callees.
Blocks narrower than a dot are drawn together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from bls_notebook.display.as_text import cells, clip
from bls_notebook.display.document import Both
from bls_notebook.display.html import Html
from bls_notebook.display.palette import ALARM, model_inks
from bls_notebook.display.pen import DIM, Look, Pen, SvgPen, legend_signs, picture_html, width_of
from bls_notebook.display.units import count, duration
from bls_notebook.display.widgets import covered
from bls_notebook.profiling.analysis.critical_path import Step
from bls_notebook.profiling.analysis.gil_waits import lock_waits
from bls_notebook.profiling.analysis.span_tree import SpanTree
from bls_notebook.profiling.records.session import Session
from bls_notebook.records.visible_text import visible

from .lanes import PICTURE, Bins, Lane, Panel, TimelineLayout, lay_out, notebook_time
from .panel import LOCK, draw_panel, lane_words

WORK, CALLS, NEVER, MARK, GHOST, TURNS = "█", "▒", "×", "▼", "┄", "▚"
_HEIGHTS = " ▁▂▃▄▅▆▇█"
_LANES = 24
_LABEL = 28
_MARKS = 12  # of which the name is told
_LEAST = 20  # characters of the plot, however narrow the terminal


def timeline_text(*sessions: Session, width: int = 100) -> str:
    """Draw sessions on one axis, as text for lines of `width` terminal cells.

    Each has a line for each lane, and above those with a queue how many wait.
    """
    return "\n".join(timeline_lines(sessions, width=width))


def timeline_lines(sessions: Sequence[Session], *, width: int = 100) -> list[str]:
    """Draw sessions on one axis; see `timeline_text`."""
    layouts = [lay_out(session) for session in sessions]
    wall = max((session.wall for session in sessions), default=0) or 1
    labels = [[_label(lane) for lane in layout.lanes[:_LANES]] for layout in layouts]
    left = min(_LABEL, max((cells(label) for each in labels for label in each), default=0)) + 4
    room = max(_LEAST, width - left)
    lines: list[str] = []
    seen: set[str] = set()
    for number, (session, layout) in enumerate(zip(sessions, layouts, strict=True), 1):
        if len(sessions) > 1:
            title = visible(session.name) or f"session {number}"
            lines.append(f"{title}  {duration(session.wall / 1e9)}")
        drawn = _lanes(session, layout, wall, room)
        for lane, (queue, row) in zip(layout.lanes[:_LANES], drawn, strict=False):
            label = clip(_label(lane), left - 4)
            if queue.strip():
                lines.append(f"{' ' * left}{queue}".rstrip())
            lines.append(f"  {label}{' ' * (left - 2 - cells(label))}{row}".rstrip())
            seen.update(WORK if char in _HEIGHTS.strip() else char for char in row)
            seen.update("1" if queue.strip() else "")
        if len(layout.lanes) > _LANES:
            lines.append(f"  and {len(layout.lanes) - _LANES} more lanes")
        if session.marks:
            points = [" "] * room
            for mark in session.marks:
                points[min(room - 1, mark.ns * room // wall)] = MARK
            lines.append(f"  marks{' ' * (left - 7)}{''.join(points)}".rstrip())
            told = [f"{visible(mark.name)} {duration(mark.ns / 1e9)}" for mark in session.marks[:_MARKS]]
            more = len(session.marks) - _MARKS
            told += [f"and {more} more"] if more > 0 else []
            lines.append(clip(f"{' ' * left}{MARK} {', '.join(told)}", width))
    end = duration(wall / 1e9)
    lines.append(f"{' ' * left}0{' ' * max(1, room - 1 - len(end))}{end}")
    signs = {
        WORK: f"{WORK} at work",
        CALLS: f"{CALLS} its calls run",
        "1": "1-9 waiting in the queue",
        TURNS: f"{TURNS} takes turns on Python's lock (GIL)",
        GHOST: f"{GHOST} could have run here",
        NEVER: f"{NEVER} never ran",
    }
    legend = "   ".join(words for sign, words in signs.items() if sign in seen)
    return [*lines, f"{' ' * left}{legend}"] if legend else lines


def _label(lane: Lane) -> str:
    return visible(f"{lane.title} · {lane.label}" if lane.label else lane.title)


def _lanes(session: Session, layout: TimelineLayout, wall: int, room: int) -> list[tuple[str, str]]:
    """For each lane the line of its queue and that of its blocks."""
    own, busy, waits, locked, could = ([Bins(room, wall) for _ in layout.lanes] for _ in range(5))
    tree = SpanTree(session)
    lanes = {span.id: lane for span, lane in zip(session.spans, layout.lane, strict=True)}
    for ghost in session.ghosts:
        could[lanes[ghost.span]].add(ghost.begin, ghost.end)
    for wait in lock_waits(session, tree):
        for piece in wait.pieces if not wait.queued else ():
            locked[lanes[wait.span]].add(*piece)
    if layout.lanes and layout.lanes[0].kind == "notebook":
        busy[0].add(0, session.wall)
        for piece in notebook_time(session, tree)[0]:
            own[0].add(*piece)
    for i, span in enumerate(session.spans):
        lane = layout.lane[i]
        if layout.wait[i] >= 0:
            waits[lane].add(span.sent, span.started)
        if not span.ran:
            busy[lane].add(span.sent, span.ended)
        elif layout.part[i] == 0:
            busy[lane].add(span.started, span.ended)
            for piece in tree.self_time(tree.execution(span.id)):
                own[lane].add(*piece)
        if layout.device[i] >= 0:
            for bins in (own, busy):
                bins[layout.device[i]].add(span.started, span.started + span.device_ns)
    return [
        (
            "".join(map(_depth, waits[k].covered)),
            "".join(map(_block, own[k].covered, busy[k].covered, locked[k].covered, could[k].covered))
            if lane.kind != "refused"
            else "".join(NEVER if part else " " for part in busy[k].covered),
        )
        for k, lane in enumerate(layout.lanes[:_LANES])
    ]


def _depth(waiting: float) -> str:
    number = round(waiting)
    if waiting < 0.2:
        return " "
    return str(min(max(number, 1), 9))


def _block(own: float, busy: float, locked: float, could: float) -> str:
    """Full blocks for a stretch that is all work, lower ones for less."""
    if busy < 0.02:
        return GHOST if could > 0.5 else " "
    if locked > 0.5 * busy:
        return TURNS
    return _HEIGHTS[min(8, max(1, round(busy * 8)))] if own >= busy / 2 else CALLS


_RIGHT = 26.0  # px right of the time axis
_AXIS = 22.0
_MODELS = 8

Critical = Sequence[Iterable[Step]]
AnyPen = TypeVar("AnyPen", bound=Pen)


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
        (Look(inks[name].light, over=inks[name].hatch), clip(name, 22)) for name in sorted(filter(None, inks))[:_MODELS]
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


def timeline_block(sessions: Sequence[Session], *, widget: Any = None, gap: bool = False) -> Both:
    """Draw one session, or a second one below it on the same scale, for a document whose styles have
    ``figure``.

    ``widget`` is what covers the picture, as `live_timeline` makes it; with a ``gap`` the lines of text have
    an empty line above and below.
    """

    def lines(width: int) -> list[str]:
        return [""] * gap + timeline_lines(sessions, width=width) + [""] * gap

    picture = timeline_picture(*sessions)
    return Both(lines, picture if widget is None else covered(picture, widget))
