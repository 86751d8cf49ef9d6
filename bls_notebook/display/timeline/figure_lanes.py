"""One session of the timeline's figure: how many are at work, its lanes, its calls, its critical path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from bls_notebook.display.palette import ALARM, Ink
from bls_notebook.display.timeline.bins import Bins
from bls_notebook.display.timeline.figure_parts import DIM, INK, LEFT, PLOT, readable, width_of, write
from bls_notebook.display.timeline.lanes import Lane, Layout
from bls_notebook.display.units import duration
from bls_notebook.observe.analysis.critical_path import Step
from bls_notebook.observe.analysis.intervals import Interval
from bls_notebook.observe.analysis.span_tree import Relations, serving
from bls_notebook.observe.records.session import Session, Span

__all__ = ["Panel", "draw_panel"]

_TITLE, _WORK, _ROW, _IDLE, _THIN, _WAIT, _QUEUE = 0.26, 0.34, 0.185, 0.15, 0.1, 0.055, 0.34  # inches
_LANES = 40
_CALLS = 150  # requests up to which the lines of calls are drawn
_ALONE = 1_200  # requests up to which each is drawn by itself
_HATCH = "//////"
_SEAM = {"edgecolor": "white", "linewidth": 0.6}


@dataclass(frozen=True)
class Place:
    """Where a lane is, in inches from the top: its queue from `waits` to `blocks`, its blocks from there."""

    lane: Lane
    waits: float
    wait: float
    blocks: float
    row: float

    @property
    def bottom(self) -> float:
        return self.blocks + self.lane.rows * self.row


@dataclass(frozen=True)
class Panel:
    """A session and the places of its lanes."""

    session: Session
    layout: Layout
    number: int
    titled: bool
    top: float
    work: float
    places: tuple[Place, ...]
    height: float

    @classmethod
    def of(cls, session: Session, layout: Layout, top: float, *, titled: bool, number: int) -> Panel:
        """Find a place for every lane."""
        work = top + _TITLE * titled
        y = work + _WORK
        places = []
        model = None
        for lane in layout.lanes[:_LANES]:
            y += 0.03 if (lane.model, lane.version) == model else 0.09
            model = (lane.model, lane.version)
            wait = min(_WAIT, _QUEUE / lane.waits) if lane.waits else 0.0
            row = _ROW if lane.rows == 1 else min(_THIN, 1.0 / lane.rows)
            row = _IDLE if lane.kind == "idle" else row
            blocks = y + lane.waits * wait + (0.02 if lane.waits else 0)
            places.append(Place(lane, y, wait, blocks, row))
            y = places[-1].bottom
        left_out = len(layout.lanes) - len(places)
        return cls(
            session, layout, number, titled, top, work, tuple(places), y + 0.1 + 0.2 * (left_out > 0) - top
        )

    def block(self, i: int) -> tuple[float, float]:
        """Return the top and the height of a span's run."""
        place = self.places[self.layout.lane[i]]
        share = place.row / self.layout.parts[i]
        return place.blocks + self.layout.row[i] * place.row + self.layout.part[i] * share, share * 0.94

    def arrival(self, i: int) -> tuple[float, float]:
        """Return the top and the height of where a span arrives: in the queue, or at its run."""
        if self.layout.wait[i] < 0:
            return self.block(i)
        place = self.places[self.layout.lane[i]]
        base = place.waits + place.lane.waits * place.wait
        return base - (self.layout.wait[i] + 1) * place.wait, place.wait * 0.85

    def shows(self, i: int) -> bool:
        """Whether a span's lane is drawn."""
        return self.layout.lane[i] < len(self.places)


Box = tuple[float, float, float, float]  # left, top, width, height


def draw_panel(axes: Any, panel: Panel, inks: dict[str, Ink], end: int, path: list[Step] | None) -> None:
    """Draw a session into axes whose x is ns and whose y is inches from the top."""
    relations = Relations(panel.session)
    _labels(axes, panel, inks, end)
    _work(axes, panel, relations, end)
    dot = end / PLOT / 150
    faint = 0.25 if path is not None else 1.0
    if len(panel.session.spans) <= _ALONE:
        _blocks(axes, panel, relations, inks, dot, faint)
    else:
        _shades(axes, panel, relations, inks, end, faint)
    if len(panel.session.spans) <= _CALLS and path is None:
        _calls(axes, panel, inks)
    if path is not None:
        _critical(axes, panel, inks, path, dot)
    bottom = max([panel.work + _WORK, *(place.bottom for place in panel.places)])
    axes.vlines([panel.session.wall], panel.work + 0.02, bottom, color=DIM, linewidth=0.8)


def _labels(axes: Any, panel: Panel, inks: dict[str, Ink], end: int) -> None:
    if panel.titled:
        name = panel.session.name or f"session {panel.number + 1}"
        y = panel.top + _TITLE / 2
        write(axes, name, (0, y), (-72 * (LEFT - 0.06), 0), ha="left", fontsize=10, fontweight="bold")
        room = width_of(name, 11) + 0.1 - LEFT  # of the plot, in inches, that the name takes
        x = max(panel.session.wall, room * end / PLOT)
        write(axes, duration(panel.session.wall / 1e9), (x, y), (0, -2),
              ha="right" if panel.session.wall > end / 2 else "left", fontweight="bold")  # fmt: skip
    write(axes, "at work", (0, panel.work + 0.16), (-10, 0), ha="right", color=DIM, fontsize=7.5)
    model = None
    for place in panel.places:
        lane = place.lane
        same, model = (lane.model, lane.version) == model, (lane.model, lane.version)
        middle = place.blocks + min(lane.rows * place.row, _ROW) / 2
        same = same or lane.kind == "idle"
        which = "device" if lane.kind == "gpu" else lane.label
        words = " · ".join(filter(None, (lane.model or lane.name, which)))
        if lane.model in inks:
            axes.plot([0], [middle], transform=_left(axes, -6), marker="s", markersize=5, clip_on=False,
                      color=inks[lane.model].light, linestyle="")  # fmt: skip
        write(axes, _clipped(words), (0, middle), (-14, 0), ha="right", color=DIM if same else INK)
    if len(panel.layout.lanes) > len(panel.places):
        more = f"and {len(panel.layout.lanes) - len(panel.places)} more lanes"
        write(axes, more, (0, panel.top + panel.height - 0.15), (-14, 0), ha="right", color=DIM)


def _left(axes: Any, points: float) -> Any:
    from matplotlib.transforms import ScaledTranslation

    return axes.transData + ScaledTranslation(points / 72, 0, axes.figure.dpi_scale_trans)


def _clipped(words: str) -> str:
    return words if len(words) <= 24 else f"{words[:23]}…"


def _work(axes: Any, panel: Panel, relations: Relations, end: int) -> None:
    """How many requests are worked on, upwards, and how many wait, downwards."""
    columns = 500
    up, down = Bins(columns, end), Bins(columns, end)
    for piece in relations.working():
        up.add(*piece)
    for span in panel.session.spans:
        down.add(span.queued, span.started)
    base = panel.work + 0.22
    _steps(axes, up.covered, end, base, -0.17 / max([1.0, *up.covered]), color="#a9adb3")
    most = max(down.covered)
    if most > 0.05:
        _steps(axes, down.covered, end, base, 0.09 / max(1.0, most), **_hatched("#8a8f96"))


def _steps(axes: Any, heights: Sequence[float], end: int, base: float, unit: float, **look: Any) -> None:
    """Fill what is between a base and heights of equal stretches, in as few points as it takes."""
    xs: list[float] = [0]
    ys: list[float] = [base]
    last = 0.0
    for k, height in enumerate([*(round(h, 2) for h in heights), 0.0]):
        if height != last:
            xs += [end * k / len(heights)] * 2
            ys += [base + last * unit, base + height * unit]
            last = height
    axes.fill(xs, ys, **{"linewidth": 0, **look})


def _hatched(colour: str) -> dict[str, Any]:
    return {"facecolor": "none", "hatch": _HATCH, "edgecolor": colour}


def _blocks(
    axes: Any, panel: Panel, relations: Relations, inks: dict[str, Ink], dot: float, faint: float
) -> None:
    """Each request by itself."""
    pale: dict[str, list[Box]] = {}
    solid: dict[str, list[Box]] = {}
    waits: dict[str, list[Box]] = {}
    wrong: list[Box] = []
    marks: list[tuple[float, float]] = []
    for i, span in enumerate(panel.session.spans):
        if not panel.shows(i):
            continue
        top, height = panel.block(i)
        if not span.ran:
            waits.setdefault(span.model, []).append((span.sent, top, max(span.duration, dot), height))
        else:
            for begin, until in _own(relations, span):
                solid.setdefault(span.model, []).append((begin, top, max(until - begin, dot), height))
            pale.setdefault(span.model, []).append((span.started, top, span.ended - span.started, height))
        if panel.layout.wait[i] >= 0:
            where, high = panel.arrival(i)
            waits.setdefault(span.model, []).append((span.sent, where, span.started - span.sent, high))
        if span.state == "error":
            wrong.append(
                (span.started if span.ran else span.sent, top, max(span.ended - span.started, dot), height)
            )
        marks += [(mark.ns, top) for mark in span.marks if mark.kind == "response"]
        _on_device(panel, i, span, solid, dot)
    for model, boxes in pale.items():
        _fill(axes, boxes, facecolor=inks[model].light, alpha=0.3 * faint, **_SEAM)
    for model, boxes in solid.items():
        ink = inks[model]
        _fill(axes, boxes, facecolor=ink.light, alpha=faint, hatch=ink.hatch or None, **_SEAM)
    for model, boxes in waits.items():
        _fill(axes, boxes, alpha=0.9 * faint, **_hatched(inks[model].light))
    if wrong:
        _fill(axes, wrong, facecolor="none", edgecolor=ALARM.light, linewidth=1.2)
    if marks:
        axes.plot(*zip(*marks, strict=True), marker="v", markersize=3, color=INK, linestyle="")
    if faint == 1:
        _names(axes, panel, relations, inks)


def _own(relations: Relations, span: Span) -> list[Interval]:
    execution = relations.execution(span.id)
    return relations.own(execution) if relations.children.get(execution) else [serving(span)]


def _on_device(panel: Panel, i: int, span: Span, solid: dict[str, list[Box]], dot: float) -> None:
    lane = panel.layout.device[i]
    if 0 <= lane < len(panel.places):
        place = panel.places[lane]
        top = place.blocks + panel.layout.device_row[i] * place.row
        solid.setdefault(span.model, []).append(
            (span.started, top, max(span.device_ns, dot), place.row * 0.94)
        )


def _names(axes: Any, panel: Panel, relations: Relations, inks: dict[str, Ink]) -> None:
    """What the blocks are, where there is room for it."""
    inch = axes.get_xlim()[1] / PLOT
    for i, span in enumerate(panel.session.spans):
        if not span.ran or not panel.shows(i) or panel.layout.parts[i] > 1 or span.marks:
            continue
        top, height = panel.block(i)
        text = span.request_id or span.model
        first, until = _own(relations, span)[0] if _own(relations, span) else (span.started, span.started)
        on_own = first <= span.started and width_of(text, 7.5) + 0.1 <= (until - first) / inch
        begin = span.started if on_own or first > span.started else until
        if height < 0.14 or width_of(text, 7.5) + 0.1 > (span.ended - begin) / inch:
            continue
        colour = readable(inks[span.model].light) if on_own else INK
        write(axes, text, (begin, top + height / 2), (4, -0.5), fontsize=7.5, color=colour)


def _fill(axes: Any, boxes: Iterable[Box], **look: Any) -> None:
    from matplotlib.collections import PolyCollection

    corners = [[(x, y), (x + w, y), (x + w, y + h), (x, y + h)] for x, y, w, h in boxes]
    axes.add_collection(PolyCollection(corners, **{"linewidth": 0, **look}), autolim=False)


def _shades(
    axes: Any, panel: Panel, relations: Relations, inks: dict[str, Ink], end: int, faint: float
) -> None:
    """Too many requests for a block each: the darker a stretch of a lane, the more of it is at work."""
    columns = 400
    count = len(panel.layout.lanes)
    own, busy, waits = ([Bins(columns, end) for _ in range(count)] for _ in range(3))
    for i, span in enumerate(panel.session.spans):
        lane = panel.layout.lane[i]
        if span.ran and panel.layout.part[i] == 0:
            busy[lane].add(span.started, span.ended)
            for piece in _own(relations, span):
                own[lane].add(*piece)
        if panel.layout.wait[i] >= 0:
            waits[lane].add(span.sent, span.started)
    for k, place in enumerate(panel.places):
        ink = inks[place.lane.model].light if place.lane.model in inks else DIM
        rows = place.lane.rows
        both = zip(own[k].covered, busy[k].covered, strict=True)
        levels = [min(4, ceil((0.3 * all_ + 0.7 * mine) / rows * 5)) for mine, all_ in both]
        for shade, boxes in _runs(levels, end / columns, place.blocks, rows * place.row * 0.94).items():
            _fill(axes, boxes, color=ink, alpha=faint * (0.1 + 0.9 * shade / 4))
        if place.lane.waits:
            base = place.waits + place.lane.waits * place.wait
            _steps(axes, waits[k].covered, end, base, -place.wait, alpha=faint, **_hatched(ink))


def _runs(levels: Sequence[int], step: float, top: float, height: float) -> dict[int, list[Box]]:
    """Boxes of neighbouring columns of the same level, by the level; none of level 0."""
    found: dict[int, list[Box]] = {}
    begin = 0
    for k in range(1, len(levels) + 1):
        if k == len(levels) or levels[k] != levels[begin]:
            if levels[begin]:
                found.setdefault(levels[begin], []).append((begin * step, top, (k - begin) * step, height))
            begin = k
    return found


def _calls(axes: Any, panel: Panel, inks: dict[str, Ink]) -> None:
    """Lines from callers to those they called."""
    for i, span in enumerate(panel.session.spans):
        caller = panel.layout.parent[i]
        if caller < 0 or not panel.shows(i) or not panel.shows(caller):
            continue
        top, height = panel.arrival(i)
        start, depth = panel.block(caller)
        begin, until = (start + depth, top) if top >= start else (start, top + height)
        colour = inks[panel.session.spans[caller].model].light
        axes.vlines([span.sent], begin, until, color=colour, linewidth=0.7, alpha=0.7)
        axes.plot([span.sent], [until - 0.02 if top >= start else until + 0.02], color=colour, markersize=2.6,
                  marker="v" if top >= start else "^", linestyle="", alpha=0.8)  # fmt: skip


def _critical(axes: Any, panel: Panel, inks: dict[str, Ink], path: Sequence[Step], dot: float) -> None:
    """The path in full colour, and a line along it."""
    number = {span.id: i for i, span in enumerate(panel.session.spans)}
    lit: dict[str, list[Box]] = {}
    xs: list[float] = []
    ys: list[float] = []
    for step in path:
        i = number.get(step.span, -1)
        if i < 0 or not panel.shows(i):
            xs.append(float("nan"))
            ys.append(float("nan"))
            continue
        top, height = panel.arrival(i) if step.phase in ("queue", "compute_input") else panel.block(i)
        lit.setdefault(step.model, []).append((step.begin, top, max(step.end - step.begin, dot), height))
        xs += [step.begin, step.end]
        ys += [top + height / 2] * 2
    for model, boxes in lit.items():
        _fill(axes, boxes, color=inks[model].light)
    axes.plot(xs, ys, color=INK, linewidth=1.1, solid_joinstyle="miter")
