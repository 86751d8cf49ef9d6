"""The timeline of one or two sessions as text and as a static picture, on one time axis. Pure.

As in the widget, there is a lane for each instance with its queued requests hatched above it, and lines lead from
callers to callees. Very many requests are drawn as shades instead of blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from math import ceil
from typing import Any

from bls_notebook.display import (
    ALARM,
    DIM,
    INK,
    Ink,
    Look,
    Pen,
    Rectangle,
    cells,
    clip,
    covered,
    legend_signs,
    model_inks,
    picture_html,
    readable,
    steps_area,
    width_of,
)
from bls_notebook.display.document import Both
from bls_notebook.profiling.analysis.span_tree import SpanTree, lock_waits, serving
from bls_notebook.profiling.intervals import Interval
from bls_notebook.profiling.session import Session, Span
from bls_notebook.records import duration, visible

from .lanes import TITLE_HEIGHT, WORK_HEIGHT, Bins, Lane, Panel, TimelineLayout, notebook_time, requests_and_calls

_CALLS = 150  # the most requests for which lines from callers to callees are drawn
_ALONE = 1_200  # the most requests that are drawn as separate blocks
_COLUMNS = 240  # columns of shades and curves
_ROUNDED = 0.05  # requests in a column: a smaller part beyond a whole number is not drawn
_LANE_LABEL = 26  # the most characters of a label of a lane
LOCK = "x"  # the hatch of a wait for the GIL
UNAWAITED = "nobody waits"  # for the response of a request that is not answered yet
FAILED = "✗ "  # before the name of a failed request: a frame hardly differs from a block of its color
LOOP = "."  # the hatch of a wait for an event loop


Boxes = dict[str, list[Rectangle]]


def draw_panel(pen: Pen, panel: Panel, inks: dict[str, Ink]) -> None:
    tree = SpanTree.of(panel.session)
    _labels(pen, panel, inks)
    _work(pen, panel, tree)
    if len(panel.session.spans) > _ALONE:
        _shades(pen, panel, inks)
    else:
        failed = Counter(panel.layout.first[i] for i, span in enumerate(panel.session.spans) if span.state == "error")
        _blocks(pen, panel, tree, inks, failed)
        _names(pen, panel, tree, inks, failed)
    if len(panel.session.spans) <= _CALLS:
        _calls(pen, panel, inks)
    _locks(pen, panel, inks)
    _ghosts(pen, panel, inks)
    bottom = max([panel.work + WORK_HEIGHT, *(place.bottom for place in panel.places)])
    pen.stems([(panel.session.wall, panel.work + 2, bottom)], Look(DIM))
    _draw_marks(pen, panel, bottom)


def lane_words(lane: Lane) -> str:
    """Return the label of a lane; a long one of idle instances leaves out the model, which the lane above names."""
    words = " · ".join(filter(None, (lane.title, lane.label)))
    short = lane.kind == "idle" and cells(words) > _LANE_LABEL
    return clip(lane.label if short else words, _LANE_LABEL) + lane.count


def _labels(pen: Pen, panel: Panel, inks: dict[str, Ink]) -> None:
    if panel.titled:
        y = panel.top + TITLE_HEIGHT / 2
        name = clip(panel.session.name, 60) or f"session {panel.number + 1}"
        pen.words(f"{name}: {duration(panel.session.wall / 1e9)}", 0, y, bold=True, size=12)
    model = None
    for place in panel.places:
        lane = place.lane
        same, model = (lane.model, lane.version) == model, (lane.model, lane.version)
        if lane.kind != "gpu":
            pen.chip(-13, place.middle - 3.5, 7, 7, Look(inks[lane.model].light))
        quiet = same or lane.kind == "idle"
        pen.words(lane_words(lane), 0, place.middle, right=-19, align="end", colour=DIM if quiet else INK)
    if len(panel.layout.lanes) > len(panel.places):
        more = f"and {len(panel.layout.lanes) - len(panel.places)} more lanes"
        pen.words(more, 0, panel.top + panel.height - 14, right=-19, align="end", colour=DIM)


def _work(pen: Pen, panel: Panel, tree: SpanTree) -> None:
    """Draw the number of requests at work upwards, and of waiting requests downwards, each with its largest value."""
    up, down = Bins(_COLUMNS, int(pen.end)), Bins(_COLUMNS, int(pen.end))
    work = tree.working_events()
    for begin, end in zip(work[::2], work[1::2], strict=True):
        up.add((begin - 1) / 2, end / 2)
    for span in panel.session.spans:
        down.add(span.queued, span.started)
    base = panel.work + 28
    both = (
        ("at work", up.covered, max(1, ceil(max(up.covered) - _ROUNDED)), -23, -10, Look("#a9adb3")),
        ("queued", down.covered, ceil(max(down.covered) - _ROUNDED), 12, 9, Look("#8a8f96", hatch="/")),
    )
    aside = -10 - max(width_of(f"{most:,}", 9) for _, _, most, *_ in both)
    pen.words("0", 0, base - 1, right=-4, align="end", size=9, colour=DIM)
    for name, columns, most, height, middle, look in both:
        if most:
            _steps(pen, columns, base, height / most, look)
            pen.words(f"{most:,}", 0, base + min(height + 3, middle), right=-4, align="end", size=9, colour=DIM)
            pen.words(name, 0, base + middle, right=aside, align="end", size=10, colour=DIM)


def _steps(pen: Pen, heights: Sequence[float], base: float, unit: float, look: Look) -> None:
    """Fill the area between a base line and the heights of columns of equal width."""
    step = pen.end / len(heights)
    points = ((k * step, base + round(height, 1) * unit) for k, height in enumerate(heights))
    pen.area(steps_area(points, base, pen.end), look)


def _draw_marks(pen: Pen, panel: Panel, bottom: float) -> None:
    """Draw named moments: a line, and the name unless it would cover the previous name."""
    marks = [(mark.ns, visible(mark.name)) for mark in panel.session.marks[:_CALLS]]
    top = panel.work + 5
    pen.stems([(ns, top, bottom) for ns, _ in marks], Look(INK, 0.45))
    pen.marks([(ns, top + 4) for ns, _ in marks], "v", Look(INK), 5)
    free = -1.0
    for ns, name in marks:
        words = clip(name, 24)
        room = (width_of(words, 10) + 10) * pen.end / pen.plot
        late = ns + room > pen.end
        if ns - room * late >= free:
            pen.words(words, ns, top, align="end" if late else "start", right=-4 if late else 4, size=10)
            free = ns + room


def _notebook(panel: Panel, tree: SpanTree, pale: Boxes, solid: Boxes) -> None:
    """Add the notebook's lane: solid for its own work, pale for waits."""
    for place in panel.places[:1]:
        if place.lane.kind == "notebook":
            own, waits = notebook_time(panel.session, tree)
            for pieces, boxes in ((own, solid), (waits, pale)):
                boxes[""] = [(begin, place.blocks, end - begin, place.row - 1) for begin, end in pieces]


def _blocks(pen: Pen, panel: Panel, tree: SpanTree, inks: dict[str, Ink], failed: Counter[int]) -> None:
    """Draw blocks, waits, errors and marks; `failed` counts a batch's failed requests by its first span's index."""
    pale: Boxes = {}
    solid: Boxes = {}
    waits: dict[tuple[str, str], list[Rectangle]] = {}
    wrong: list[Rectangle] = []
    marks: list[tuple[float, float]] = []
    dot = pen.end / pen.plot * 1.2
    _notebook(panel, tree, pale, solid)
    for i, span in enumerate(panel.session.spans):
        if not panel.shows(i):
            continue
        top, height = panel.block(i)
        if not span.ran:
            waits.setdefault((span.model, "/"), []).append((span.sent, top, max(span.duration, dot), height))
        else:
            own = _own(tree, span)
            alone = len(own) == 1 and span.ended - span.started - (own[0][1] - own[0][0]) < dot
            if not alone:
                pale.setdefault(span.model, []).append((span.started, top, span.ended - span.started, height))
            for begin, until in [(span.started, span.ended)] if alone else own:
                solid.setdefault(span.model, []).append((begin, top, max(until - begin, dot), height))
        if panel.layout.wait[i] >= 0:
            where, high = panel.arrival(i)
            hatch = LOOP if panel.layout.lanes[panel.layout.lane[i]].waits_for_loop else "/"
            waits.setdefault((span.model, hatch), []).append((span.sent, where, span.started - span.sent, high))
        if span.state == "error":
            begin = span.started if span.ran else span.sent
            first, parts = panel.layout.first[i], panel.layout.parts[i]
            if failed[first] < parts or i == first:  # one frame for a batch without a good response
                high = height if failed[first] < parts else parts * height + (parts - 1) * min(1.0, height / 7)
                wrong.append((begin, top, max(span.ended - begin, dot), high))
        marks += [(mark.ns, top + 4) for mark in span.marks if mark.kind == "response"]
        if 0 <= (lane := panel.layout.device[i]) < len(panel.places):
            place = panel.places[lane]
            top = place.blocks + panel.layout.device_row[i] * place.row
            solid.setdefault(span.model, []).append((span.started, top, max(span.device_ns, dot), place.row - 1))
    for model, boxes in pale.items():
        pen.boxes(boxes, Look(inks[model].light, 0.3))
    for model, boxes in solid.items():
        pen.boxes(boxes, Look(inks[model].light, over=inks[model].hatch))
    for (model, hatch), boxes in waits.items():
        pen.boxes(boxes, Look(inks[model].light, 0.9, hatch))
    if wrong:
        pen.boxes(wrong, Look(ALARM.light, edge=True))
    if marks:
        pen.marks(marks, "v", Look(INK), 5)


def _locks(pen: Pen, panel: Panel, inks: dict[str, Ink]) -> None:
    """Draw crosses over the times in which requests waited for the GIL: on their blocks, or in the queue."""
    number = {span.id: i for i, span in enumerate(panel.session.spans)}
    turns: list[Rectangle] = []
    waits: Boxes = {}
    for wait in lock_waits(panel.session)[:_ALONE]:
        i = number[wait.span]
        if panel.shows(i):
            top, height = panel.arrival(i) if wait.queued else panel.block(i)
            boxes = waits.setdefault(panel.session.spans[i].model, []) if wait.queued else turns
            above = 0.0 if wait.queued else 0.6 * height  # leave the name readable
            boxes += [(begin, top + above, end - begin, height - above) for begin, end in wait.pieces]
    if turns:
        pen.boxes(turns, Look("#ffffff", 0.8, LOCK))
    for model, boxes in waits.items():
        pen.boxes(boxes, Look(inks[model].light, 0.9, LOCK))


def _ghosts(pen: Pen, panel: Panel, inks: dict[str, Ink]) -> None:
    """Outline the times at which calls could have run."""
    outlines: Boxes = {}
    for i, begin, end, part, parts in panel.layout.ghosts[:_CALLS]:
        if panel.shows(i):
            top, height = panel.block(i)
            box = begin, top + 1 + part * (height - 2) / parts, end - begin, (height - 2) / parts
            outlines.setdefault(panel.session.spans[i].model, []).append(box)
    for model, boxes in outlines.items():
        pen.boxes(boxes, Look(inks[model].light, 0.15))
        pen.boxes(boxes, Look(INK, edge=True))


def _own(tree: SpanTree, span: Span) -> list[Interval]:
    execution = tree.execution(span.id)
    return tree.self_time(execution) if tree.children.get(execution) else [serving(span)]


def _names(pen: Pen, panel: Panel, tree: SpanTree, inks: dict[str, Ink], failed: Counter[int]) -> None:
    """Write names into the blocks that are wide enough."""
    scale = pen.end / pen.plot
    unawaited = tree.unawaited()
    stacks = {(panel.layout.lane[i], (begin + end) / 2) for i, begin, end, _, parts in panel.layout.ghosts if parts > 1}
    for i, span in enumerate(panel.session.spans):
        if not span.ran or not panel.shows(i) or panel.layout.part[i] or _streams(span):
            continue
        if any(lane == panel.layout.lane[i] and span.started <= middle < span.ended for lane, middle in stacks):
            continue  # outlines would cross the name
        top, height = panel.block(i)
        name = FAILED * (span.state == "error") + (span.request_id or span.model)
        name += f" ({UNAWAITED})" * (span.id in unawaited)
        if panel.layout.parts[i] > 1:
            bad = "all" if failed[i] == panel.layout.parts[i] else failed[i]
            text = f"batch of {panel.layout.parts[i]}" + (f": {FAILED}{bad}" if failed[i] > 0 else "")
            if (width_of(text, 10) + 12) * scale <= span.ended - span.started:
                pen.words(text, span.started, top + height * panel.layout.parts[i] / 2, right=6, size=10, halo=True)
            continue
        own = _own(tree, span)
        first, until = own[0] if own else (span.started, span.started)
        turn = "call {}, response {}".format(*panel.layout.turns[i]) if i in panel.layout.turns else ""
        for text in filter(None, (turn and f"{name}: {turn}", turn, name)):
            room = (width_of(text, 10) + 8) * scale
            on_own = first <= span.started and room <= until - first
            begin = span.started if on_own or first > span.started else until
            if height >= 13 and room <= span.ended - begin:
                colour = readable(inks[span.model].light) if on_own else INK
                crosses = not on_own and any(a < begin + room and b > begin for a, b in own)
                pen.words(text, begin, top + height / 2, right=4, size=10, colour=colour, halo=crosses)
                break


def _streams(span: Span) -> bool:
    """Return whether the block of a span has signs of responses."""
    return any(mark.kind == "response" for mark in span.marks)


def _shades(pen: Pen, panel: Panel, inks: dict[str, Ink]) -> None:
    """Draw very many requests as shades: darker means busier."""
    own, busy, waits = _covered(panel.session, panel.layout, _COLUMNS, int(pen.end))
    for k, place in enumerate(panel.places):
        ink = inks[place.lane.model].light if place.lane.kind != "gpu" else DIM
        rows = place.lane.rows
        both = zip(own[k].covered, busy[k].covered, strict=True)
        levels = [min(4, ceil((0.3 * all_ + 0.7 * mine) / rows * 5)) for mine, all_ in both]
        for shade, boxes in _runs(levels, pen.end / _COLUMNS, place.blocks, rows * place.row - 1).items():
            pen.boxes(boxes, Look(ink, 0.1 + 0.9 * shade / 4))
        if place.lane.waits:
            base = place.waits + place.lane.waits * place.wait
            _steps(pen, waits[k].covered, base, -place.wait, Look(ink, hatch="/"))


def _covered(session: Session, layout: TimelineLayout, columns: int, end: int) -> tuple[list[Bins], ...]:
    """Return for each lane how its columns are covered by own work, by executions, and by waits for an instance."""
    own, busy, waits = ([Bins(columns, end) for _ in layout.lanes] for _ in range(3))
    tree = SpanTree.of(session)
    if layout.lanes and layout.lanes[0].kind == "notebook":
        busy[0].add(0, session.wall)
        for piece in notebook_time(session, tree)[0]:
            own[0].add(*piece)
    for i, span in enumerate(session.spans):
        lane = layout.lane[i]
        if layout.wait[i] >= 0:
            waits[lane].add(span.sent, span.started)
        if span.ran and layout.part[i] == 0:
            busy[lane].add(span.started, span.ended)
            for piece in tree.self_time(tree.execution(span.id)):
                own[lane].add(*piece)
    return own, busy, waits


def _runs(levels: Sequence[int], step: float, top: float, height: float) -> dict[int, list[Rectangle]]:
    """Return boxes of adjacent columns of the same level, by level; none for level 0."""
    by_level: dict[int, list[Rectangle]] = {}
    begin = 0
    for level, columns in groupby(levels):
        count = len(list(columns))
        if level:
            by_level.setdefault(level, []).append((begin * step, top, count * step, height))
        begin += count
    return by_level


def _calls(pen: Pen, panel: Panel, inks: dict[str, Ink]) -> None:
    """Draw lines from callers to callees."""
    stems: dict[str, list[tuple[float, float, float]]] = {}
    heads: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for i, span in enumerate(panel.session.spans):
        caller = panel.layout.parent[i]
        if caller < 0 or not panel.shows(i) or not panel.shows(caller):
            continue
        top, height = panel.arrival(i)
        start, depth = panel.block(caller)
        down = top >= start
        begin, until = (start + depth, top) if down else (start, top + height)
        colour = inks[panel.session.spans[caller].model].light
        stems.setdefault(colour, []).append((span.sent, begin, until))
        heads.setdefault((colour, "v" if down else "^"), []).append((span.sent, until))
    for colour, lines in stems.items():
        pen.stems(lines, Look(colour, 0.7))
    for (colour, shape), points in heads.items():
        pen.marks(points, shape, Look(colour, 0.9), 4)


WORK, CALLS, NEVER, MARK, GHOST, TURNS = "█", "▒", "×", "▼", "┄", "▚"
_HEIGHTS = " ▁▂▃▄▅▆▇█"
_LANES = 24
_LABEL = 28
_MARKS = 12  # marks whose names are listed
_LEAST = 20  # the fewest characters of the plot, even in a narrow terminal


def timeline_lines(*sessions: Session, width: int = 100) -> list[str]:
    """Draw sessions on one axis as text, in lines of `width` terminal cells.

    Each lane is a line; above a lane with a queue, another line has the numbers of waiting requests.
    """
    layouts = [TimelineLayout(session) for session in sessions]
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
            names = [f"{visible(mark.name)} {duration(mark.ns / 1e9)}" for mark in session.marks[:_MARKS]]
            more = len(session.marks) - _MARKS
            names += [f"and {more} more"] if more > 0 else []
            lines.append(clip(f"{' ' * left}{MARK} {', '.join(names)}", width))
    end = duration(wall / 1e9)
    lines.append(f"{' ' * left}0{' ' * max(1, room - 1 - len(end))}{end}")
    signs = {
        WORK: f"{WORK} at work",
        CALLS: f"{CALLS} its calls run",
        "1": "1-9 waiting in the queue",
        TURNS: f"{TURNS} takes turns with the GIL",
        GHOST: f"{GHOST} could have run here",
        NEVER: f"{NEVER} never ran",
    }
    legend = "   ".join(words for sign, words in signs.items() if sign in seen)
    return [*lines, f"{' ' * left}{legend}"] if legend else lines


def _label(lane: Lane) -> str:
    return visible(f"{lane.title} · {lane.label}" if lane.label else lane.title)


def _lanes(session: Session, layout: TimelineLayout, wall: int, room: int) -> list[tuple[str, str]]:
    """Return two lines for each lane: its queue and its blocks."""
    own, busy, waits = _covered(session, layout, room, wall)
    locked, could = ([Bins(room, wall) for _ in layout.lanes] for _ in range(2))
    lanes = {span.id: lane for span, lane in zip(session.spans, layout.lane, strict=True)}
    for ghost in session.ghosts:
        could[lanes[ghost.span]].add(ghost.begin, ghost.end)
    for wait in lock_waits(session):
        for piece in wait.pieces if not wait.queued else ():
            locked[lanes[wait.span]].add(*piece)
    for i, span in enumerate(session.spans):
        if not span.ran:
            busy[layout.lane[i]].add(span.sent, span.ended)
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
    return " " if waiting < 0.2 else str(min(max(round(waiting), 1), 9))


def _block(own: float, busy: float, locked: float, could: float) -> str:
    if busy < 0.02:
        return GHOST if could > 0.5 else " "
    if locked > 0.5 * busy:
        return TURNS
    return _HEIGHTS[min(8, max(1, round(busy * 8)))] if own >= busy / 2 else CALLS


_RIGHT = 26.0  # px right of the time axis
_AXIS = 22.0
_MODELS = 8


def timeline_svg(*sessions: Session) -> str:
    """Draw sessions as an SVG document as wide as its page; equal sessions give equal text."""
    layouts = [TimelineLayout(session) for session in sessions]
    labels = [width_of(lane_words(lane)) for layout in layouts for lane in layout.lanes]
    end = max(session.wall for session in sessions) or 1
    pen = Pen(end, 27 + max([56.0, *labels]), _RIGHT)
    inks = model_inks({"", *(span.model for session in sessions for span in session.spans)})
    height = 4.0
    for number, (session, layout) in enumerate(zip(sessions, layouts, strict=True)):
        panel = Panel.of(session, layout, height, titled=len(sessions) > 1, number=number)
        draw_panel(pen, panel, inks)
        height += panel.height
    for x, text in pen.ticks:
        pen.words(text, x, height + 8, align="middle" if x else "start", size=10, colour="#555555")
    legend: list[tuple[Look | str, str]] = [
        (Look(inks[name].light, over=inks[name].hatch), clip(name, 22)) for name in sorted(filter(None, inks))[:_MODELS]
    ]
    words: dict[str, str] = {}
    for session, layout in zip(sessions, layouts, strict=True):
        words |= timeline_signs(session, layout)
    legend += [(look, words[kind]) for kind, look in _LOOKS.items() if kind in words]
    return pen.document(legend_signs(pen, height + _AXIS, legend), height)


def timeline_alt(*sessions: Session) -> str:
    """Describe the picture in words."""
    said = []
    for record in sessions:
        served = Counter(span.model for span in record.spans)
        models = ", ".join(f"{name} {number:,}" for name, number in sorted(served.items())[:12])
        name = f"{record.name}: " if record.name else ""
        took = duration(record.wall / 1e9)
        said.append(f"{name}{requests_and_calls(record)} in {took} ({models})")
    return f"Timeline. {'. '.join(said)}."


_LOOKS: dict[str, Look | str] = {
    "queued": Look(DIM, hatch="/"),
    "loop": Look(DIM, hatch=LOOP),
    "async": "async",
    "calls": Look("#b5b5b5", 0.5),
    "lock": Look(DIM, hatch=LOCK),
    "ghost": Look(DIM, edge=True),
    "mark": "▾",
    "error": Look(ALARM.light, edge=True),
}


def timeline_signs(session: Session, layout: TimelineLayout) -> dict[str, str]:
    """Return the legend of the signs in a session's timeline: the kind of each sign, and words."""
    spans, lanes = session.spans, layout.lanes
    models = [lane.seen for lane in lanes if lane.kind == "instance" and lane.seen]
    in_queue = "queued" if any(span.queued < span.started for span in spans) else "on the way"
    known = (
        ("queued", any(span.sent < span.started for span in spans), in_queue),
        ("loop", any(lane.waits_for_loop for lane in lanes), "waits for the event loop"),
        ("async", any(model.is_async and not model.decoupled for model in models), "one batch at a time"),
        ("calls", any(caller >= 0 for caller in layout.parent), "its calls run"),
        ("lock", bool(lock_waits(session)), "turns with the GIL"),
        ("ghost", bool(session.ghosts), "could have run here"),
        ("mark", any(map(_streams, spans)), "a response"),
        ("error", any(span.state == "error" for span in spans), f"{FAILED}error"),
    )
    return {kind: words for kind, seen, words in known if seen}


def timeline_block(sessions: Sequence[Session], *, widget: Any = None, gap: bool = False) -> Both:
    """Draw one session, or two on one axis, for a document with the style ``figure``.

    A ``widget`` covers the picture; with a ``gap`` the text has an empty line above and below.
    """

    def lines(width: int) -> list[str]:
        return [""] * gap + timeline_lines(*sessions, width=width) + [""] * gap

    picture = picture_html(timeline_svg(*sessions), timeline_alt(*sessions))
    return Both(lines, picture if widget is None else covered(picture, widget))
