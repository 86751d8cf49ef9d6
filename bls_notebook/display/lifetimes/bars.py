"""The lower part of the picture: a bar for each block, links to its copies, and who holds what is left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bls_notebook.display.lifetimes.facts import holder_of, holder_text, owner, profile
from bls_notebook.display.lifetimes.lanes import LifeGroup, LifeRow, highest
from bls_notebook.display.palette import NOTEBOOK, Ink, device_ink
from bls_notebook.display.pictures.pen import INK, LEFT_BEHIND, Box, Look, Pen, steps_area, width_of
from bls_notebook.display.text import clip
from bls_notebook.display.units import size
from bls_notebook.observe.records.lifetimes import Life, is_left_behind

__all__ = ["draw_lives", "lives_height", "row_ink"]

_ROW, _HEAD, _BAR = 18.0, 23.0, 13.0  # px
_LINKS, _PIECES, _SINGLE = 160, 160, 200  # links, steps of a band, bars of a row with all their marks


@dataclass(frozen=True, slots=True)
class _Place:
    """A row and where it is."""

    row: LifeRow
    middle: float

    @property
    def low(self) -> float:
        return self.middle - _BAR / 2

    @property
    def high(self) -> float:
        return self.middle + _BAR / 2


def lives_height(groups: Sequence[LifeGroup]) -> float:
    """Return how many pixels the rows of `groups` take."""
    return sum(_HEAD + _ROW * len(group.rows) for group in groups) + 6


def row_ink(row: LifeRow) -> Ink:
    """Return the ink of a row; one of several devices is of none."""
    return device_ink(row.device) if row.device else NOTEBOOK


def draw_lives(pen: Pen, groups: Sequence[LifeGroup], top: float) -> None:
    """Draw the rows of `groups` from `top` on."""
    places: list[_Place] = []
    for number, group in enumerate(groups):
        height = _HEAD + _ROW * len(group.rows)
        if number % 2 == 0:
            pen.boxes([(0, top, pen.end, height)], Look("#808080", 0.08))
        pen.words(clip(group.label, 22), 0, top + 15, right=-8, align="end", size=12, bold=True)
        places += [_Place(row, top + _HEAD + _ROW * (i + 0.5)) for i, row in enumerate(group.rows)]
        top += height
    for place in places:
        if place.row.first:
            pen.words(_label(place.row), 0, place.middle, right=-8, align="end", colour="#444444")
        (_draw_band if place.row.folded else _draw_bars)(pen, place)
        _draw_holders(pen, place)
    _draw_links(pen, places)


def _label(row: LifeRow) -> str:
    if row.folded:
        most = max(bytes_ for _, bytes_, _ in profile(row.lives))
        return f"{clip(row.label, 12)} ×{len(row.lives):,} ≤ {size(most)}"
    sizes = {life.bytes for life in row.lives}
    return f"{clip(row.label, 14)}  {'≤ ' if len(sizes) > 1 else ''}{size(max(sizes))}"


def _until(pen: Pen, life: Life) -> float:
    """Return where a bar ends; even the shortest can be seen."""
    return max(pen.end if life.died < 0 else life.died, life.born + pen.end / pen.plot * 1.6)


def _draw_bars(pen: Pen, place: _Place) -> None:
    lives, ink = place.row.lives, row_ink(place.row)
    spans: list[Box] = []
    for life in lives:
        start, stop = float(life.born), _until(pen, life)
        # Bars of many that could not be told apart become one.
        if spans and len(lives) > _SINGLE and start - (spans[-1][0] + spans[-1][2]) < pen.end / 2000:
            start, stop = spans[-1][0], max(stop, spans[-1][0] + spans[-1][2])
            spans.pop()
        spans.append((start, place.low, stop - start, _BAR))
    pen.boxes(spans, Look(ink.light, over=ink.hatch))
    if any(life.died < 0 for life in lives):  # the open end points out of the picture
        pen.marks([(pen.end * 1.012, place.middle)], ">", Look(ink.light), _BAR)
    if len(lives) <= _SINGLE:
        _draw_stays(pen, place)


def _draw_stays(pen: Pen, place: _Place) -> None:
    """Mark on the bars when somebody else got the block, and write who where there is room."""
    scale = pen.plot / pen.end
    wide = [life for life in place.row.lives if (_until(pen, life) - life.born) * scale > 9]
    ticks = [(stay.ns, place.low - 1.5, place.high + 1.5) for life in wide for stay in life.stays]
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
    scale = _ROW * 0.88 / (max(bytes_ for _, bytes_, _ in steps) or 1)
    shown = [(step[0], place.high - scale * step[1]) for step in highest(steps, int(pen.end), _PIECES)]
    pen.area(steps_area(shown, place.high, pen.end), Look(row_ink(place.row).light))


def _draw_holders(pen: Pen, place: _Place) -> None:
    """Write beside a bar that stays who holds it."""
    left = [life for life in place.row.lives if life.died < 0]
    if not left:
        return
    text = clip(holder_text(holder_of(left[0])), 23)
    if len(left) > 1:
        text = f"{len(left):,} left, {size(sum(life.bytes for life in left))}"
    colour = LEFT_BEHIND if any(map(is_left_behind, left)) else INK
    pen.words(text, pen.end, place.middle, right=12, colour=colour)


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
        tip = (life.born, here.low if down else here.high)
        pen.line([(begin, there.high if down else there.low), tip], look, 1)
        pen.marks([tip], "v" if down else "^", look, 5)
