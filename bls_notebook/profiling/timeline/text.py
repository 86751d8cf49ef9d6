"""The timeline as text: a line for each lane, a character for each stretch of time."""

from __future__ import annotations

from collections.abc import Sequence

from bls_notebook.display.text import cells, clip
from bls_notebook.display.units import duration
from bls_notebook.profiling.analysis.cells.lock_waits import lock_waits
from bls_notebook.profiling.analysis.span_tree import SpanTree
from bls_notebook.profiling.records.session import Session
from bls_notebook.records.visible import visible

from .bins import Bins
from .lanes import Lane, Layout, lay_out
from .notebook import notebook_time

WORK, CALLS, NEVER, MARK, GHOST, LOCK = "█", "▒", "×", "▼", "┄", "▚"
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
        LOCK: f"{LOCK} takes turns on Python's lock (GIL)",
        GHOST: f"{GHOST} could have run here",
        NEVER: f"{NEVER} never ran",
    }
    legend = "   ".join(words for sign, words in signs.items() if sign in seen)
    return [*lines, f"{' ' * left}{legend}"] if legend else lines


def _label(lane: Lane) -> str:
    return visible(f"{lane.title} · {lane.label}" if lane.label else lane.title)


def _lanes(session: Session, layout: Layout, wall: int, room: int) -> list[tuple[str, str]]:
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
        return LOCK
    return _HEIGHTS[min(8, max(1, round(busy * 8)))] if own >= busy / 2 else CALLS
