"""The lifetime chart as a picture and as text: bytes over time on each device, a bar for each block. Pure.

Blocks are grouped by model, then by name and device; blocks of one name that never overlap share a row. If
there are more rows than the picture has, the names with most rows are folded into one row each that shows
their bytes over time; then the smallest names are folded together.

The text has few columns: its bars are drawn from event to event and not to scale, so two runs of the same cell
look the same.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from bls_notebook import display as text
from bls_notebook.display import (
    ALARM,
    DIM,
    INK,
    LEFT_BEHIND,
    NOTEBOOK,
    Ink,
    Look,
    Pen,
    Rectangle,
    clip,
    legend_signs,
    model_inks,
    steps_area,
    width_of,
)
from bls_notebook.lifetimes.records import Life, Lifetimes, bytes_over_time, is_left_behind
from bls_notebook.profiling.intervals import Rows
from bls_notebook.records import count, grouped, size

from . import block_facts

_ROW, _HEAD, _BAR = 18.0, 23.0, 13.0  # px
_LINKS, _PIECES, _SINGLE = 160, 160, 200  # links, steps of a band, bars of a row with all their marks
_NAMES, _LINES, _HOLDERS, _ALONE = 192.0, 44.0, 176.0, 26.0  # px beside the time axis; `_ALONE` without owners
_PANEL, _GAP, _AXIS = 90.0, 22.0, 24.0
_ROWS, _DEVICES, _INKS = 36, 4, 10
_STEPS = 300  # steps of a curve; beyond it, only the highest are kept
_NEAR = 1.8  # the capacity is drawn as a line if it is less than this many times the peak
_TEXT_ROWS, _TEXT_COLUMNS = 24, 48
_LEVELS = " ▁▂▃▄▅▆▇█"
_OTHERS = "\0"  # stands for the model in a row of several models


@dataclass(frozen=True, slots=True)
class LifeRow:
    """A row of the chart.

    ``lives`` are in the order of birth. Unless ``folded``, no two of them overlap and each is a bar;
    otherwise they are drawn as one band. ``first`` says whether the row begins a name.
    """

    label: str
    device: str
    lives: tuple[Life, ...]
    first: bool = True
    folded: bool = False


@dataclass(frozen=True, eq=False)
class LifeLane:
    """All blocks of one name, maker and device, and the rows in which no two of them overlap."""

    model: str
    label: str
    device: str
    rows: list[list[Life]]
    lives: tuple[Life, ...]

    @cached_property
    def weight(self) -> tuple[int, int]:
        """The bytes that it left behind, and its peak."""
        steps = bytes_over_time(self.lives)
        return steps[-1][2], max(alive for _, alive, _ in steps)


def layout(record: Lifetimes, most: int) -> dict[str, list[LifeRow]]:
    """Distribute blocks to at most `most` rows (2 or more), by model.

    If every block has a bar, models are in the order of their first birth. If some are folded, models that left
    most bytes behind come first, then the largest.
    """
    lanes = _fold_names(life_lanes(record), most)
    spare, folded = most - len(lanes), set[LifeLane]()
    for lane in sorted(lanes, key=lambda lane: len(lane.rows)):
        if len(lane.rows) - 1 <= spare:
            spare -= len(lane.rows) - 1
        else:
            folded.add(lane)
    rows: dict[str, list[LifeRow]] = {}
    for lane in heaviest_first(lanes) if folded else lanes:
        own = rows.setdefault(lane.model, [])
        if lane in folded:
            own.append(LifeRow(lane.label, lane.device, lane.lives, folded=True))
        else:
            own += [LifeRow(lane.label, lane.device, tuple(lives), first=not i) for i, lives in enumerate(lane.rows)]
    return rows


def _title(model: str) -> str:
    return "others" if model == _OTHERS else model or "notebook"


def life_lanes(record: Lifetimes) -> list[LifeLane]:
    """Group blocks by name in the order of first birth; the names of one model are adjacent."""
    by_model: dict[str, dict[tuple[str, str], list[Life]]] = {}
    for life in sorted(record.lives, key=lambda life: (life.born, life.id)):
        names = by_model.setdefault(life.maker.model, {})
        names.setdefault((block_facts.name_of(life), life.device), []).append(life)
    return [
        LifeLane(model, name, device, pack(lives), tuple(lives))
        for model, names in by_model.items()
        for (name, device), lives in names.items()
    ]


def pack(lives: Iterable[Life]) -> list[list[Life]]:
    """Assign each block, in the order of birth, the first free row; a living block occupies its row to the end."""
    rows, members = Rows(), list[list[Life]]()
    for life in lives:
        row = rows.take(life.born, inf if life.died < 0 else max(life.died, life.born + 1))
        if row == len(members):
            members.append([])
        members[row].append(life)
    return members


def highest(steps: Sequence[tuple[int, ...]], end: int, most: int) -> list[tuple[int, ...]]:
    """Thin out steps (ns, bytes, ...): keep the step with most bytes in each of `most` equal parts of the time."""
    if len(steps) <= most:
        return list(steps)
    best: dict[int, tuple[int, ...]] = {}
    for step in steps:
        piece = step[0] * most // (end + 1)
        if piece not in best or step[1] > best[piece][1]:
            best[piece] = step
    kept = [best[piece] for piece in sorted(best)]
    return kept if kept[-1] == steps[-1] else [*kept, steps[-1]]


def _fold_names(lanes: list[LifeLane], most: int) -> list[LifeLane]:
    """Join the smallest lanes into one, if there are more than `most`."""
    if len(lanes) <= most:
        return lanes
    kept = set(sorted(lanes, key=lambda lane: lane.weight, reverse=True)[: most - 1])
    rest = [lane for lane in lanes if lane not in kept]
    lives = tuple(sorted((life for lane in rest for life in lane.lives), key=lambda each: (each.born, each.id)))
    devices = {lane.device for lane in rest}
    label = f"+{count(len({(lane.model, lane.label) for lane in rest}), 'name')}"
    rows: list[list[Life]] = [[]] * (len(lives) + 2)  # so many rows that `layout` folds it
    joined = LifeLane(_OTHERS, label, devices.pop() if len(devices) == 1 else "", rows, lives)
    return [*(lane for lane in lanes if lane in kept), joined]


def heaviest_first(lanes: Sequence[LifeLane]) -> list[LifeLane]:
    """Order lanes by the bytes left behind and the peak: first of their models, then of the lanes."""
    by_model = grouped((lane.model, lane.weight) for lane in lanes)
    models = {model: tuple(map(sum, zip(*weights, strict=True))) for model, weights in by_model.items()}
    order = sorted(models, key=lambda model: (model != _OTHERS, models[model]), reverse=True)
    return sorted(lanes, key=lambda lane: (-order.index(lane.model), lane.weight), reverse=True)


@dataclass(frozen=True, slots=True)
class _Place:
    """A row and its position."""

    row: LifeRow
    ink: Ink
    middle: float
    most: int  # bytes of a bar of full height

    @property
    def base(self) -> float:
        return self.middle + _BAR / 2

    def top(self, life: Life) -> float:
        return self.base - _BAR * tall(life.bytes, self.most)


def tall(bytes_: int, most: int) -> float:
    """Return a height from 0 to 1: the square root makes even a hundredth visible."""
    return max(math.sqrt(bytes_ / (most or 1)), 0.15)


def draw_lives(
    pen: Pen, groups: Mapping[str, Sequence[LifeRow]], inks: Mapping[str, Ink], top: float, side: float
) -> None:
    """Draw the rows of `groups` below `top`, in their models' colours; `side` is the room (px) left of the axis."""
    rows = [row for own in groups.values() for row in own]
    most = max((row_most(row) for row in rows), default=1)
    several = len({row.device for row in rows}) > 1
    places: list[_Place] = []
    for number, (model, own) in enumerate(groups.items()):
        height = _HEAD + _ROW * len(own)
        if number % 2 == 0:
            pen.boxes([(0, top, pen.end, height)], Look("#808080", 0.08))
        pen.words(clip(_title(model), 30), 0, top + 15, right=-8, align="end", size=12, bold=True)
        ink = inks.get(model, NOTEBOOK)
        places += [_Place(row, ink, top + _HEAD + _ROW * (i + 0.5), most) for i, row in enumerate(own)]
        top += height
    for place in places:
        if place.row.first:
            label = _label(place.row, place.row.device if several else "")
            pen.words(label, 0, place.middle, right=-8, align="end", colour="#444444")
            room = int((side - 22 - width_of(label)) / width_of("x", 10))
            line = lines_text(place.row.lives)
            if line != place.row.label and room > 5:
                pen.words(clip(line, room), 0, place.middle, right=6 - side, size=10, colour=DIM)
        (_draw_band if place.row.folded else _draw_bars)(pen, place)
        _draw_holders(pen, place)
    _draw_links(pen, places)


def row_most(row: LifeRow) -> int:
    """Return the peak of a row's blocks together, or its largest block if that was freed in no time."""
    return max(*(alive for _, alive, _ in bytes_over_time(row.lives)), *(life.bytes for life in row.lives))


def lines_text(lives: Iterable[Life]) -> str:
    """Return the line that allocated blocks, or the number of lines."""
    lines = {block_facts.line_text(life.line) for life in lives}
    return lines.pop() if len(lines) == 1 else f"{len(lines)} lines"


def _label(row: LifeRow, device: str) -> str:
    name = f"{clip(row.label, 12 if row.folded else 14)}{f' {device}' if device else ''}"
    if row.folded:
        return f"{name} ×{len(row.lives):,} ≤ {size(row_most(row))}"
    return f"{name}  {block_facts.sizes_text(row.lives)}"


def _until(pen: Pen, life: Life) -> float:
    """Return the end of a bar; even the shortest bar is visible."""
    return max(pen.end if life.died < 0 else life.died, life.born + pen.end / pen.plot * 1.6)


def _draw_bars(pen: Pen, place: _Place) -> None:
    lives, ink = place.row.lives, place.ink
    spans: list[Rectangle] = []
    for life in lives:
        start, stop, top = float(life.born), _until(pen, life), place.top(life)
        # If there are many, bars too close to distinguish become one.
        if spans and len(lives) > _SINGLE and start - (spans[-1][0] + spans[-1][2]) < pen.end / 2000:
            start, stop = spans[-1][0], max(stop, spans[-1][0] + spans[-1][2])
            top = min(top, spans.pop()[1])
        spans.append((start, top, stop - start, place.base - top))
    pen.boxes(spans, Look(ink.light, over=ink.hatch))
    stays = [place.base - place.top(life) for life in lives if life.died < 0]
    if stays:  # the open end points out of the picture
        high = max(*stays, 4)
        pen.marks([(pen.end * 1.012, place.base - high / 2)], ">", Look(ink.light), high)
    if len(lives) <= _SINGLE:
        _draw_stays(pen, place)


def _draw_stays(pen: Pen, place: _Place) -> None:
    """Mark on the bars when another model got the block, with its name if there is room."""
    scale = pen.plot / pen.end
    wide = [life for life in place.row.lives if (_until(pen, life) - life.born) * scale > 9]
    ticks = [(stay.ns, place.top(life) - 1.5, place.base + 1.5) for life in wide for stay in life.stays]
    pen.stems(ticks, Look("#ffffff"), 2.6)
    pen.stems(ticks, Look(INK), 1.2)
    for life in wide:
        for stay, until in zip(life.stays, [*(stay.ns for stay in life.stays[1:]), _until(pen, life)], strict=False):
            text = f"→ {block_facts.owner(stay.at)}"
            if stay.at.model != life.maker.model and (until - stay.ns) * scale > width_of(text, 9) + 12:
                pen.words(text, stay.ns, place.middle, right=6, size=9, halo=True)


def _draw_band(pen: Pen, place: _Place) -> None:
    """Draw the blocks of a folded row as one band; its height shows their bytes."""
    shown = [
        (step[0], place.base - (_BAR * tall(step[1], place.most) if step[1] else 0))
        for step in highest(bytes_over_time(place.row.lives), int(pen.end), _PIECES)
    ]
    pen.area(steps_area(shown, place.base, pen.end), Look(place.ink.light))


def _draw_holders(pen: Pen, place: _Place) -> None:
    """Write the owners of the blocks that are still alive beside their row."""
    if text := owners_text(place.row.lives):
        colour = LEFT_BEHIND if any(map(is_left_behind, place.row.lives)) else INK
        pen.words(clip(text, 27), pen.end, place.middle, right=12, colour=colour)


def owners_text(lives: Iterable[Life]) -> str:
    """Return the owners of those blocks that are still alive, with the number and bytes of several blocks."""
    left = [life for life in lives if life.died < 0]
    if not left:
        return ""
    largest, *others = block_facts.held(left)
    text = largest.held_by.replace(" and ", ", ") + (f" and {len(others):,} more" if others else "")
    return text if len(left) == 1 else f"{len(left):,}, {size(sum(life.bytes for life in left))}: {text}"


def _draw_links(pen: Pen, places: Sequence[_Place]) -> None:
    """Draw an arrow from each block to its copies: dark for a transfer, pale for a copy on one device."""
    where = {life.id: (place, life) for place in places if not place.row.folded for life in place.row.lives}
    links = [(*where[life.source], here, life) for here, life in where.values() if life.source in where]
    for there, source, here, life in links if len(links) <= _LINKS else ():
        down = here.middle > there.middle
        look = Look(INK, 1 if life.how == "transfer" else 0.45)
        begin = max(source.born, life.born - life.transfer_ns)
        tip = (life.born, here.top(life) if down else here.base)
        pen.line([(begin, there.base if down else there.top(source)), tip], look, 1)
        pen.marks([tip], "v" if down else "^", look, 5)


def lifetimes_svg(record: Lifetimes) -> str:
    """Draw the lifetime chart as an SVG document as wide as its page; equal records give equal text."""
    side = _NAMES + (_LINES if any(life.line.line for life in record.lives) else 0)
    pen = Pen(block_facts.end_of(record), side, _HOLDERS if record.alive() else _ALONE)
    return pen.document(*_draw(pen, record, side))


def _draw(pen: Pen, record: Lifetimes, side: float) -> tuple[float, float]:
    """Draw everything; return the height, and the lower end of the time axis' lines."""
    used = [facts for facts in block_facts.device_facts(record) if facts.blocks]
    fullest = sorted(used, key=lambda each: -each.peak)[:_DEVICES]
    groups = layout(record, _ROWS)
    inks = model_inks(life.maker.model for life in record.lives)
    top = 6.0
    for facts in used:
        if facts in fullest:
            _draw_bytes(pen, facts, [life for life in record.lives if life.device == facts.name], inks, top)
            top += _PANEL + _GAP
    draw_lives(pen, groups, inks, top, side)
    top += sum(_HEAD + _ROW * len(own) for own in groups.values()) + 6
    for x, words in pen.ticks:
        pen.words(words, x, top + 8, align="middle" if x else "start", size=10, colour="#555555")
    return legend_signs(pen, top + _AXIS, _signs(groups, inks)), top


def _draw_bytes(
    pen: Pen, facts: block_facts.DeviceFacts, lives: Sequence[Life], inks: Mapping[str, Ink], top: float
) -> None:
    """Draw the panel of one device: bytes over time by model, bytes left behind, the blocks at the peak."""
    room = max(facts.total - facts.used, 0)
    near = 0 < room < _NEAR * facts.peak
    base = top + _PANEL
    unit = -_PANEL / max(facts.peak * 1.45, room * 1.1 if near else 1)
    models = list(dict.fromkeys(life.maker.model for life in lives))
    steps = highest(bytes_over_time(lives, models), int(pen.end), _STEPS)
    for place, model in reversed([*enumerate(models, 3)]):  # each covers those below it
        area = steps_area(((step[0], base + step[place] * unit) for step in steps), base, pen.end)
        pen.area(area, Look("#ffffff"))
        pen.area(area, Look(inks[model].light, 0.75, over=inks[model].hatch))
    if facts.left:
        pen.area(steps_area(((step[0], base + step[2] * unit) for step in steps), base, pen.end), Look(ALARM.light))
    pen.line([(0, base), (pen.end, base)], Look("#bbbbbb"), 0.8)
    if near:
        pen.line([(0, base + room * unit), (pen.end, base + room * unit)], Look(INK), 1)
    of = f"{'╌ ' if near else ''}of {size(facts.total)}" if facts.total else ""
    before = f"{size(facts.used)} before" if facts.used else ""
    for number, words in enumerate((clip(facts.label, 20), f"peak {size(facts.peak)}", of, before)):
        first = number == 0
        colour = INK if number < 2 else DIM
        pen.words(words, 0, top + 18 + 21 * number, right=-8, align="end", bold=first, colour=colour)
    if facts.peak:
        pen.marks([(facts.peak_ns, base + facts.peak * unit)], "v", Look(INK))
        words = clip(f"{size(facts.peak)}: {block_facts.sums_text(facts.at_peak)}", int(pen.plot / width_of("x")))
        wide = width_of(words) / pen.plot * pen.end
        start = min(max(facts.peak_ns - wide / 2, 0), max(pen.end - wide, 0))
        pen.words(words, start, base + facts.peak * unit - 13)
    if facts.left:
        y = base + facts.left * unit
        pen.words(f"{size(facts.left)} left behind", pen.end, y, right=6, colour=LEFT_BEHIND, bold=True)


def _signs(groups: Mapping[str, Sequence[LifeRow]], inks: Mapping[str, Ink]) -> list[tuple[Look | str, str]]:
    """Return the legend of the colours, ticks and lines in the picture."""
    rows = [row for own in groups.values() for row in own]
    lives = [life for row in rows for life in row.lives]
    singles = [life for row in rows if not row.folded for life in row.lives]
    ids = {life.id for life in singles}
    copies = {life.how for life in singles if life.source in ids}
    models: list[tuple[Look | str, str]] = [
        (Look(inks[model].light, over=inks[model].hatch), clip(_title(model), 24))
        for model in [*groups][:_INKS]
        if model in inks
    ]
    others: list[tuple[bool, Look | str, str]] = [
        (any(map(is_left_behind, lives)), Look(ALARM.light), "left behind"),
        (len({life.bytes for life in lives}) > 1, "↕", "higher: more bytes"),
        ("transfer" in copies, "→", "transfer"),
        (bool(copies - {"transfer"}), "⇢", "copy"),
        (any(life.stays for life in singles), "|", "passed to a model"),
        (any(life.died < 0 for life in lives), "▸", "still alive"),
        (any(row.folded for row in rows), "≤", "many blocks in one row: bytes over time"),
    ]
    return [*models, *((sign, words) for shown, sign, words in others if shown)]


def chart_lines(record: Lifetimes, *, width: int = 100) -> list[str]:
    """Return the lifetime chart as lines of text, a bar for each block."""
    times = sorted({life.born for life in record.lives} | {life.died for life in record.lives if life.died >= 0})
    columns = min(len(times), _TEXT_COLUMNS)

    def column(ns: int) -> int:
        return bisect_left(times, ns) * columns // len(times)

    groups = layout(record, _TEXT_ROWS)
    most = max((row_most(row) for own in groups.values() for row in own), default=1)
    rows: list[list[str]] = []
    for model, own in groups.items():
        for number, row in enumerate(own):
            bars = (_band if row.folded else _bars)(row, columns, column, most)
            many = f" ×{len(row.lives):,}" if row.folded else ""
            largest = size(max(life.bytes for life in row.lives))
            line = lines_text(row.lives)
            name = row.label + many if row.first else ""
            rows.append(
                ["" if number else _title(model), name, "" if line == row.label else line, largest, row.device, bars]
            )
    names = dict.fromkeys(row.device for own in groups.values() for row in own)
    simulated = [label for name in names if (label := block_facts.device_label(record, name)) != name]
    stays = "▶ alive at the end" if any(life.died < 0 for life in record.lives) else ""
    heading = text.facts(f"lives, event by event (not to scale) · █ {size(most)} ▁ less", *simulated, stays)
    return [f"  {heading}", *text.table(rows, right="   r", width=max(width, columns + 68), most=22)]


def _glyph(bytes_: int, most: int) -> str:
    return _LEVELS[round(tall(bytes_, most) * (len(_LEVELS) - 1))] if bytes_ else " "


def _bars(row: LifeRow, columns: int, column: Callable[[int], int], most: int) -> str:
    cells = [" "] * (columns + 1)
    for life in row.lives:
        start = column(life.born)
        stop = columns if life.died < 0 else max(column(life.died), start + 1)
        cells[start:stop] = _glyph(max(life.bytes, 1), most) * (stop - start)
        if life.died < 0:
            cells[columns] = "▶"
    return "".join(cells).rstrip()


def _band(row: LifeRow, columns: int, column: Callable[[int], int], most: int) -> str:
    """Draw the blocks of a folded row as one line: the most bytes in each column."""
    heights = [0] * columns
    before, at = 0, 0
    for ns, alive, _ in [*bytes_over_time(row.lives), (-1, 0, 0)]:
        start = columns - 1 if ns < 0 else column(ns)
        for i in range(at, start + 1):
            heights[i] = max(heights[i], before)
        heights[start] = max(heights[start], alive)
        before, at = alive, start
    cells = "".join(_glyph(alive, most) for alive in heights)
    return (cells + ("▶" if any(life.died < 0 for life in row.lives) else "")).rstrip()
