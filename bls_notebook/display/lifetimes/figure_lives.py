"""The lower part of the figure: a bar for each block, links to its copies, and who holds what is left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bls_notebook.display.lifetimes.facts import holder_of, holder_text, owner
from bls_notebook.display.lifetimes.figure_parts import INK, LEFT_BEHIND, PLOT, area, bare, width_of, write
from bls_notebook.display.lifetimes.lanes import Group, Row, highest, profile
from bls_notebook.display.palette import NOTEBOOK, Ink, device_ink
from bls_notebook.display.text import clip
from bls_notebook.display.units import size
from bls_notebook.observe.analysis.memory_use import is_left_behind
from bls_notebook.observe.records.lifetimes import Life

__all__ = ["draw_lives", "lives_height", "row_ink"]

_ROW, _HEAD = 0.185, 0.24  # inches
_BAR = 0.72  # of a row
_LINKS, _PIECES, _SINGLE = 160, 160, 200  # arrows, steps of a band, bars of a row with all their marks


@dataclass(frozen=True, slots=True)
class _Place:
    """A row and where it is; one unit of the y axis is an inch, from the top down."""

    row: Row
    top: float

    @property
    def middle(self) -> float:
        return self.top + _ROW / 2

    @property
    def low(self) -> float:
        return self.middle - _ROW * _BAR / 2

    @property
    def high(self) -> float:
        return self.middle + _ROW * _BAR / 2


def lives_height(groups: Sequence[Group]) -> float:
    """Return how many inches the rows of `groups` take."""
    return sum(_HEAD + _ROW * len(group.rows) for group in groups) + 0.08


def row_ink(row: Row) -> Ink:
    """Return the ink of a row; one of several devices is of none."""
    return device_ink(row.device) if row.device else NOTEBOOK


def draw_lives(axes: Any, groups: Sequence[Group], end: int) -> None:
    """Draw the rows of `groups`.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Of the height that `lives_height` says; has the time axis already.
    groups : sequence of Group
    end : int
        When the track ended, in nanoseconds.
    """
    axes.set_ylim(lives_height(groups), 0)
    bare(axes)
    places: list[_Place] = []
    top = 0.0
    for number, group in enumerate(groups):
        height = _HEAD + _ROW * len(group.rows)
        if number % 2 == 0:
            axes.axhspan(top, top + height, facecolor="#f4f5f6", linewidth=0, zorder=0)
        name = clip(group.label, 22)
        write(axes, name, (0, top + 0.16), _BESIDE, (-8, 0), ha="right", fontsize=9.5, fontweight="bold")
        places += [_Place(row, top + _HEAD + _ROW * i) for i, row in enumerate(group.rows)]
        top += height
    for place in places:
        if place.row.first:
            write(axes, _label(place.row), (0, place.middle), _BESIDE, (-8, 0), ha="right", color="#444444")
        (_draw_band if place.row.folded else _draw_bars)(axes, place, end)
        _draw_holders(axes, place)
    _draw_links(axes, places)


_BESIDE = ("axes fraction", "data")


def _label(row: Row) -> str:
    if row.folded:
        most = max(bytes_ for _, bytes_ in profile(row.lives))
        return f"{clip(row.label, 14)} ×{len(row.lives):,}  ≤ {size(most)}"
    sizes = {life.bytes for life in row.lives}
    return f"{clip(row.label, 15)}  {'≤ ' if len(sizes) > 1 else ''}{size(max(sizes))}"


def _span(life: Life, end: int) -> tuple[float, float]:
    """Return where a bar begins and ends; even the shortest can be seen."""
    least = end / PLOT / 72 * 1.6
    return life.born, max(end if life.died < 0 else life.died, life.born + least)


def _draw_bars(axes: Any, place: _Place, end: int) -> None:
    from matplotlib.patches import Polygon

    lives, ink = place.row.lives, row_ink(place.row)
    spans: list[tuple[float, float]] = []
    for start, stop in (_span(life, end) for life in lives):
        # Bars of many that could not be told apart become one.
        if spans and len(lives) > _SINGLE and start - spans[-1][1] < end / 2000:
            spans[-1] = (spans[-1][0], max(stop, spans[-1][1]))
        else:
            spans.append((start, stop))
    axes.broken_barh(
        [(start, stop - start) for start, stop in spans], (place.low, place.high - place.low),
        facecolor=ink.light, edgecolor="white", hatch=ink.hatch, linewidth=0, zorder=2,
    )  # fmt: skip
    if any(life.died < 0 for life in lives):  # the open end points out of the picture
        corners = [(end, place.low), (end * 1.011, place.middle), (end, place.high)]
        axes.add_patch(Polygon(corners, facecolor=ink.light, linewidth=0, clip_on=False, zorder=3))
    if len(lives) <= _SINGLE:
        _draw_stays(axes, place, end)


def _draw_stays(axes: Any, place: _Place, end: int) -> None:
    """Mark on the bars when somebody else got the block, and write who where there is room."""
    wide = [life for life in place.row.lives if (_span(life, end)[1] - life.born) / end * PLOT > 0.09]
    times = [stay.ns for life in wide for stay in life.stays]
    if not times:
        return
    axes.vlines(times, place.low - 0.012, place.high + 0.012, color="white", linewidth=2.6, zorder=3)
    axes.vlines(times, place.low - 0.012, place.high + 0.012, color=INK, linewidth=1, zorder=4)
    for life in wide:
        ends = [*(stay.ns for stay in life.stays[1:]), _span(life, end)[1]]
        for stay, until in zip(life.stays, ends, strict=False):  # nobody may have had it
            if stay.at.model == life.maker.model:  # its own: the heading says so
                continue
            text = f"→ {owner(stay.at)}"
            if (until - stay.ns) / end * PLOT > width_of(text, 7) + 0.1:
                write(
                    axes, text, (stay.ns, place.middle), "data", (4, -0.4), fontsize=7, zorder=5,
                    bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "linewidth": 0, "alpha": 0.85},
                )  # fmt: skip


def _draw_band(axes: Any, place: _Place, end: int) -> None:
    """Draw the blocks of a folded row as one band, as high as their bytes."""
    ink = row_ink(place.row)
    steps = profile(place.row.lives)
    most = max(bytes_ for _, bytes_ in steps) or 1
    scale = _ROW * 0.88 / most
    shown = [(step[0], place.high - scale * step[1]) for step in highest(steps, end, _PIECES)]
    area(axes, shown, place.high, end, facecolor=ink.light, zorder=2)


def _draw_holders(axes: Any, place: _Place) -> None:
    """Write beside a bar that stays who holds it."""
    left = [life for life in place.row.lives if life.died < 0]
    if not left:
        return
    text = clip(holder_text(holder_of(left[0])), 24)
    if len(left) > 1:
        text = f"{len(left):,} left, {size(sum(life.bytes for life in left))}"
    colour = LEFT_BEHIND if any(map(is_left_behind, left)) else INK
    write(axes, text, (1, place.middle), _BESIDE, (10, 0), color=colour)


def _links(places: Sequence[_Place]) -> Iterator[tuple[_Place, Life, _Place, Life]]:
    where = {life.id: (place, life) for place in places if not place.row.folded for life in place.row.lives}
    for place, life in where.values():
        if life.source in where:
            yield *where[life.source], place, life


def _draw_links(axes: Any, places: Sequence[_Place]) -> None:
    """Draw an arrow from each block to its copies: a line for a transfer, dots for a copy on one device."""
    links = list(_links(places))
    for there, source, here, life in links if len(links) <= _LINKS else ():
        down = here.top > there.top
        axes.annotate(
            "", (life.born, here.low if down else here.high),
            xytext=(max(source.born, life.born - life.transfer_ns), there.high if down else there.low),
            annotation_clip=False, zorder=6, arrowprops=arrow(life.how),
        )  # fmt: skip


def arrow(how: str) -> dict[str, Any]:
    """Return how the arrow of a transfer, or of a copy, looks."""
    return {
        "arrowstyle": "-|>,head_width=0.16,head_length=0.3", "color": INK, "linewidth": 0.9, "shrinkA": 0,
        "shrinkB": 0, "linestyle": "-" if how == "transfer" else (0, (1, 1.3)),
    }  # fmt: skip
