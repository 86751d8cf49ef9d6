"""The lower part of the picture: a bar for each block, links to its copies, and who holds what is left."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bls_notebook.display.palette import NOTEBOOK, Ink
from bls_notebook.display.pictures.pen import DIM, INK, LEFT_BEHIND, Box, Look, Pen, steps_area, width_of
from bls_notebook.display.text import clip
from bls_notebook.display.units import size
from bls_notebook.lifetimes.records import Life, is_left_behind

from .facts import held, line_text, owner, profile
from .lanes import LifeGroup, LifeRow, highest

_ROW, _HEAD, _BAR = 18.0, 23.0, 13.0  # px
_LINKS, _PIECES, _SINGLE = 160, 160, 200  # links, steps of a band, bars of a row with all their marks


@dataclass(frozen=True, slots=True)
class _Place:
    """A row and where it is."""

    row: LifeRow
    ink: Ink
    middle: float
    most: int  # bytes that are as high as a bar can be

    @property
    def base(self) -> float:
        return self.middle + _BAR / 2

    def top(self, life: Life) -> float:
        return self.base - _BAR * tall(life.bytes, self.most)


def lives_height(groups: Sequence[LifeGroup]) -> float:
    """Return how many pixels the rows of `groups` take."""
    return sum(_HEAD + _ROW * len(group.rows) for group in groups) + 6


def tall(bytes_: int, most: int) -> float:
    """Return how high something is drawn, from 0 to 1: by the root, so that a hundredth can still be seen."""
    return max(math.sqrt(bytes_ / (most or 1)), 0.15)


def draw_lives(
    pen: Pen, groups: Sequence[LifeGroup], inks: Mapping[str, Ink], top: float, side: float
) -> None:
    """Draw the rows of `groups` from `top` on, in their models' colours; `side` is px left of the axis."""
    rows = [row for group in groups for row in group.rows]
    most = max((row_most(row) for row in rows), default=1)
    several = len({row.device for row in rows}) > 1
    places: list[_Place] = []
    for number, group in enumerate(groups):
        height = _HEAD + _ROW * len(group.rows)
        if number % 2 == 0:
            pen.boxes([(0, top, pen.end, height)], Look("#808080", 0.08))
        pen.words(clip(group.label, 30), 0, top + 15, right=-8, align="end", size=12, bold=True)
        ink = inks.get(group.model, NOTEBOOK)
        places += [_Place(row, ink, top + _HEAD + _ROW * (i + 0.5), most) for i, row in enumerate(group.rows)]
        top += height
    for place in places:
        if place.row.first:
            device = place.row.device if several else ""
            label = _label(place.row, device)
            pen.words(label, 0, place.middle, right=-8, align="end", colour="#444444")
            room = int((side - 22 - width_of(label)) / width_of("x", 10))
            line = row_line(place.row)
            if line != place.row.label and room > 5:
                pen.words(clip(line, room), 0, place.middle, right=6 - side, size=10, colour=DIM)
        (_draw_band if place.row.folded else _draw_bars)(pen, place)
        _draw_holders(pen, place)
    _draw_links(pen, places)


def row_most(row: LifeRow) -> int:
    """Return the most bytes that the blocks of a row had together."""
    together = max(bytes_ for _, bytes_, _ in profile(row.lives))
    return max(together, *(life.bytes for life in row.lives))  # one that was gone at once counts too


def row_line(row: LifeRow) -> str:
    """Return the line that made the blocks of a row, if it is one."""
    lines = {line_text(life.line) for life in row.lives}
    return lines.pop() if len(lines) == 1 else f"{len(lines)} lines"


def _label(row: LifeRow, device: str) -> str:
    name = f"{clip(row.label, 12 if row.folded else 14)}{f' {device}' if device else ''}"
    if row.folded:
        return f"{name} ×{len(row.lives):,} ≤ {size(row_most(row))}"
    sizes = {life.bytes for life in row.lives}
    return f"{name}  {'≤ ' if len(sizes) > 1 else ''}{size(max(sizes))}"


def _until(pen: Pen, life: Life) -> float:
    """Return where a bar ends; even the shortest can be seen."""
    return max(pen.end if life.died < 0 else life.died, life.born + pen.end / pen.plot * 1.6)


def _draw_bars(pen: Pen, place: _Place) -> None:
    lives, ink = place.row.lives, place.ink
    spans: list[Box] = []
    for life in lives:
        start, stop, top = float(life.born), _until(pen, life), place.top(life)
        # Bars of many that could not be told apart become one.
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
    """Mark on the bars when somebody else got the block, and write who where there is room."""
    scale = pen.plot / pen.end
    wide = [life for life in place.row.lives if (_until(pen, life) - life.born) * scale > 9]
    ticks = [(stay.ns, place.top(life) - 1.5, place.base + 1.5) for life in wide for stay in life.stays]
    pen.stems(ticks, Look("#ffffff"), 2.6)
    pen.stems(ticks, Look(INK), 1.2)
    for life in wide:
        ends = [*(stay.ns for stay in life.stays[1:]), _until(pen, life)]
        for stay, until in zip(life.stays, ends, strict=False):  # nobody may have had it
            text = f"→ {owner(stay.at)}"
            # Its own: the heading says so.
            if stay.at.model != life.maker.model and (until - stay.ns) * scale > width_of(text, 9) + 12:
                pen.words(text, stay.ns, place.middle, right=6, size=9, halo=True)


def _draw_band(pen: Pen, place: _Place) -> None:
    """Draw the blocks of a folded row as one band, as high as their bytes."""
    steps = profile(place.row.lives)
    shown = [
        (step[0], place.base - (_BAR * tall(step[1], place.most) if step[1] else 0))
        for step in highest(steps, int(pen.end), _PIECES)
    ]
    pen.area(steps_area(shown, place.base, pen.end), Look(place.ink.light))


def _draw_holders(pen: Pen, place: _Place) -> None:
    """Write beside a bar that stays who holds it."""
    left = [life for life in place.row.lives if life.died < 0]
    if not left:
        return
    holders = held(left)
    first, *others = holders[0].text.split(" and ")
    model = first.partition(".")[0] + "."
    text = ", ".join(
        [first, *(each[len(model) - 1 :] if each.startswith(model) else each for each in others)]
    )
    text += f" and {len(holders) - 1:,} more" if len(holders) > 1 else ""
    if len(left) > 1:
        text = f"{len(left):,}, {size(sum(life.bytes for life in left))}: {text}"
    colour = LEFT_BEHIND if any(map(is_left_behind, left)) else INK
    pen.words(clip(text, 27), pen.end, place.middle, right=12, colour=colour)


def _links(places: Sequence[_Place]) -> Iterator[tuple[_Place, Life, _Place, Life]]:
    where = {life.id: (place, life) for place in places if not place.row.folded for life in place.row.lives}
    for place, life in where.values():
        if life.source in where:
            yield *where[life.source], place, life


def _draw_links(pen: Pen, places: Sequence[_Place]) -> None:
    """Draw an arrow from each block to its copies: dark for a transfer, pale for a copy on one device."""
    links = list(_links(places))
    for there, source, here, life in links if len(links) <= _LINKS else ():
        down = here.middle > there.middle
        look = Look(INK, 1 if life.how == "transfer" else 0.45)
        begin = max(source.born, life.born - life.transfer_ns)
        tip = (life.born, here.top(life) if down else here.base)
        pen.line([(begin, there.base if down else there.top(source)), tip], look, 1)
        pen.marks([tip], "v" if down else "^", look, 5)
