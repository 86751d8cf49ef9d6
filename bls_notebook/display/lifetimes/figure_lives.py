"""The lower part of the figure: a bar for each block, links to its copies, and who holds what is left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bls_notebook.display.lifetimes.facts import device_label, holder_of, holder_text, owner
from bls_notebook.display.lifetimes.lanes import Group, Row, highest, profile
from bls_notebook.display.palette import device_ink
from bls_notebook.display.svg import drawn
from bls_notebook.display.text import clip
from bls_notebook.display.units import size
from bls_notebook.observe.lifetimes import Life, Lifetimes

__all__ = ["draw_legend", "draw_lives", "rows_height"]

_ROW, _HEAD = 0.185, 0.24  # inches
_BAR = 0.72  # of a row
_INCHES = 6.4  # of the time axis
_LINKS, _PIECES = 160, 400  # arrows, or steps of a band, at most
INK, DIM, LEFT_BEHIND = "#222222", "#666666", "#b34700"


@dataclass(frozen=True, slots=True)
class _Placed:
    row: Row
    top: float

    @property
    def middle(self) -> float:
        return self.top + _ROW / 2


def rows_height(groups: list[Group]) -> float:
    """Return how many inches the rows of `groups` take."""
    return sum(_HEAD + _ROW * len(group.rows) for group in groups) + 0.08


def draw_lives(axes: Any, record: Lifetimes, groups: list[Group], end: int) -> None:
    """Draw the rows of `groups`; one unit of the y axis is an inch."""
    axes.set_ylim(rows_height(groups), 0)
    axes.set_yticks([])
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#bbbbbb")
    placed: list[_Placed] = []
    top = 0.0
    for number, group in enumerate(groups):
        height = _HEAD + _ROW * len(group.rows)
        if number % 2 == 0:
            axes.axhspan(top, top + height, xmin=0, xmax=1, facecolor="#f4f5f6", linewidth=0, zorder=0)
        _beside(axes, drawn(clip(group.label, 26)), top + 0.16, weight="bold", points=9.5)
        top += _HEAD
        for row in group.rows:
            placed.append(_Placed(row, top))
            top += _ROW
    for place in placed:
        _label(axes, place)
        (_draw_band if place.row.folded else _draw_bars)(axes, place, end)
        _holders(axes, place, end)
    _draw_links(axes, placed, end)


def _beside(
    axes: Any, text: str, y: float, *, weight: str = "normal", points: float = 8.5, **given: Any
) -> None:
    axes.annotate(
        text, (0, y), xycoords=("axes fraction", "data"), xytext=(-8, 0), textcoords="offset points", ha="right",
        va="center", fontsize=points, fontweight=weight, color=given.get("color", INK), parse_math=False,
        annotation_clip=False,
    )  # fmt: skip


def _label(axes: Any, place: _Placed) -> None:
    row = place.row
    if not row.first:
        return
    if row.folded:
        most = max(bytes_ for _, bytes_ in profile(row.lives))
        text = f"{clip(row.label, 13)} ×{len(row.lives):,}  ≤ {size(most)}"
    else:
        sizes = {life.bytes for life in row.lives}
        text = f"{clip(row.label, 15)}  {'≤ ' if len(sizes) > 1 else ''}{size(max(sizes))}"
    _beside(axes, drawn(text), place.middle, color="#444444")


def _span(life: Life, end: int) -> tuple[float, float]:
    """Return where a bar begins and ends; even the shortest can be seen."""
    least = end / _INCHES / 72 * 1.6
    stop = end if life.died < 0 else life.died
    return life.born, max(stop, life.born + least)


def _draw_bars(axes: Any, place: _Placed, end: int) -> None:
    from matplotlib.patches import Polygon

    row, ink = place.row, device_ink(place.row.device)
    low, high = place.top + _ROW * (1 - _BAR) / 2, place.top + _ROW * (1 + _BAR) / 2
    spans: list[tuple[float, float]] = []
    for start, stop in (_span(life, end) for life in row.lives):
        # Bars that would not be told apart anyway become one.
        if spans and len(row.lives) > 200 and start - spans[-1][1] < end / 2000:
            spans[-1] = (spans[-1][0], max(stop, spans[-1][1]))
        else:
            spans.append((start, stop))
    axes.broken_barh(
        [(start, stop - start) for start, stop in spans], (low, high - low), facecolor=ink.light,
        edgecolor="white", hatch=ink.hatch, linewidth=0, zorder=2,
    )  # fmt: skip
    for life in row.lives:
        if life.died < 0:  # an open end: it points out of the picture
            tip = end * 1.011
            axes.add_patch(
                Polygon(
                    [(end, low), (tip, (low + high) / 2), (end, high)],
                    facecolor=ink.light, edgecolor=ink.light, linewidth=0.5, clip_on=False, zorder=3,
                )
            )  # fmt: skip
    if len(row.lives) <= 200:
        _draw_stays(axes, row, low, high, end)


def _draw_stays(axes: Any, row: Row, low: float, high: float, end: int) -> None:
    """Mark on the bars when somebody else got the block, and write who where there is room."""
    times = [stay.ns for life in row.lives for stay in life.stays]
    if not times:
        return
    axes.vlines(times, low - 0.012, high + 0.012, color="white", linewidth=2.6, zorder=3)
    axes.vlines(times, low - 0.012, high + 0.012, color=INK, linewidth=1, zorder=4)
    for life in row.lives:
        stop = _span(life, end)[1]
        for stay, until in zip(life.stays, [*(s.ns for s in life.stays[1:]), stop], strict=False):
            text = drawn(f"→ {owner(stay.at)}")
            if (until - stay.ns) / end * _INCHES > 0.065 * len(text) + 0.12:
                axes.annotate(
                    text, (stay.ns, (low + high) / 2), xytext=(4, -0.4), textcoords="offset points", va="center",
                    fontsize=7, color=INK, parse_math=False, zorder=5, annotation_clip=True,
                    bbox={"boxstyle": "square,pad=0.12", "facecolor": "white", "linewidth": 0, "alpha": 0.85},
                )  # fmt: skip


def _draw_band(axes: Any, place: _Placed, end: int) -> None:
    """Draw the blocks of a folded row as one band that is as high as their bytes."""
    ink = device_ink(place.row.device)
    low = place.top + _ROW * (1 + _BAR) / 2
    steps = [*profile(place.row.lives)]
    steps.append((end, steps[-1][1]))
    most = max(bytes_ for _, bytes_ in steps) or 1
    steps = highest(steps, end, _PIECES)
    axes.fill_between(
        [ns for ns, _ in steps], low, [low - _ROW * 0.86 * bytes_ / most for _, bytes_ in steps], step="post",
        facecolor=ink.light, edgecolor="white", hatch=ink.hatch, linewidth=0, zorder=2,
    )  # fmt: skip


def _holders(axes: Any, place: _Placed, end: int) -> None:
    """Write beside a bar that stays who holds it."""
    left = [life for life in place.row.lives if life.died < 0]
    if not left:
        return
    who = clip(holder_text(holder_of(max(left, key=lambda life: life.bytes))), 24)
    text = who if len(left) == 1 else f"{len(left):,} left, {size(sum(life.bytes for life in left))}"
    axes.annotate(
        drawn(text), (1, place.middle), xycoords=("axes fraction", "data"), xytext=(10, 0),
        textcoords="offset points", va="center", fontsize=8.5, color=LEFT_BEHIND, parse_math=False,
        annotation_clip=False,
    )  # fmt: skip


def _links(placed: list[_Placed]) -> Iterator[tuple[_Placed, Life, _Placed, Life]]:
    where = {life.id: (place, life) for place in placed if not place.row.folded for life in place.row.lives}
    for place, life in where.values():
        if life.source in where:
            yield *where[life.source], place, life


def _draw_links(axes: Any, placed: list[_Placed], end: int) -> None:
    """Draw an arrow from each block to its copies: drawn through for a transfer, dotted on one device."""
    links = list(_links(placed))
    if len(links) > _LINKS:
        return
    for there, source, here, life in links:
        start = max(source.born, life.born - life.transfer_ns)
        down = here.top > there.top
        axes.annotate(
            "", (life.born, here.middle + (-1 if down else 1) * _ROW * _BAR / 2),
            xytext=(start, there.middle + (1 if down else -1) * _ROW * _BAR / 2), annotation_clip=False, zorder=6,
            arrowprops={
                "arrowstyle": "-|>,head_width=0.16,head_length=0.3", "color": INK, "linewidth": 0.9,
                "linestyle": "-" if life.how == "transfer" else (0, (1, 1.5)), "shrinkA": 0, "shrinkB": 0,
            },
        )  # fmt: skip


def draw_legend(axes: Any, record: Lifetimes, groups: list[Group]) -> None:
    """Draw what the colours, ticks and arrows mean."""
    from matplotlib.patches import Rectangle

    axes.set_axis_off()
    axes.set_xlim(0, _INCHES)
    axes.set_ylim(0, 0.3)
    x = 0.0

    def say(text: str) -> None:
        nonlocal x
        axes.text(x + 0.3, 0.15, drawn(text), fontsize=8.5, va="center", color="#444444", parse_math=False)
        x += 0.3 + 0.079 * len(text) + 0.22

    lives = [life for group in groups for row in group.rows for life in row.lives]
    for device in sorted({life.device for life in lives}, reverse=True)[:4]:
        ink = device_ink(device)
        axes.add_patch(
            Rectangle(
                (x, 0.085), 0.24, 0.13, facecolor=ink.light, hatch=ink.hatch, edgecolor="white", linewidth=0
            )
        )
        say(clip(device_label(record, device), 24))
    if any(life.source for life in lives):
        axes.annotate(
            "",
            (x + 0.25, 0.15),
            xytext=(x, 0.15),
            arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 0.9},
        )
        say("transfer")
    if any(life.stays for life in lives):
        axes.vlines([x + 0.18], 0.07, 0.23, color=INK, linewidth=1.2)
        say("handed on")
    if any(life.died < 0 for life in lives):
        axes.plot([x + 0.16], [0.15], marker=">", color=DIM, markersize=6)
        say("still alive at the end")
