"""The lives of a track as a picture: bytes over time on each device, and below it a bar for each block.

One time axis for all of it. Colours are of devices, with a hatch each for print without colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bls_notebook.display.lifetimes.bars import draw_lives, lives_height, row_ink
from bls_notebook.display.lifetimes.facts import DeviceFacts, device_facts, device_label, end_of, sums_text
from bls_notebook.display.lifetimes.lanes import LifeGroup, highest, layout
from bls_notebook.display.palette import ALARM, device_ink
from bls_notebook.display.pictures.pen import (
    DIM,
    INK,
    LEFT_BEHIND,
    Look,
    Pen,
    legend_signs,
    steps_area,
    width_of,
)
from bls_notebook.display.pictures.svg import SvgPen
from bls_notebook.display.text import clip
from bls_notebook.display.units import size
from bls_notebook.observe.records.lifetimes import Lifetimes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["lifetimes_figure", "lifetimes_svg"]

_SIDE = 172.0  # px left of the time axis for names, and right of it for holders
_PANEL, _GAP, _AXIS = 90.0, 22.0, 24.0
_ROWS, _DEVICES, _INKS = 36, 4, 4
_STEPS = 300  # of a line; of more, the highest stay
_NEAR = 1.8  # a capacity less than so many peaks is drawn


def lifetimes_svg(record: Lifetimes) -> str:
    """Draw a memory track as an SVG document, as wide as its page: equal records give equal text."""
    pen = SvgPen(end_of(record), _SIDE, _SIDE)
    return pen.document(*_draw(pen, record))


def lifetimes_figure(record: Lifetimes) -> Figure:
    """Draw a memory track with matplotlib.

    Parameters
    ----------
    record : Lifetimes

    Returns
    -------
    matplotlib.figure.Figure
        10 inches wide; as high as its rows need.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    from bls_notebook.display.pictures.plot import PlotPen

    pen = PlotPen(end_of(record), _SIDE, _SIDE)
    return pen.figure(*_draw(pen, record))


def _draw(pen: Pen, record: Lifetimes) -> tuple[float, float]:
    """Draw everything, and return how high it is, and how far down the lines of the time axis go."""
    used = [facts for facts in device_facts(record) if facts.blocks]
    fullest = sorted(used, key=lambda each: -each.peak)[:_DEVICES]
    groups = layout(record, _ROWS)
    top = 6.0
    for facts in used:
        if facts in fullest:
            _draw_bytes(pen, facts, top)
            top += _PANEL + _GAP
    draw_lives(pen, groups, top)
    top += lives_height(groups)
    for x, words in pen.ticks:
        pen.words(words, x, top + 8, align="middle" if x else "start", size=10, colour="#555555")
    return legend_signs(pen, top + _AXIS, _signs(record, groups)), top


def _draw_bytes(pen: Pen, facts: DeviceFacts, top: float) -> None:
    """The panel of one device: its bytes over time, what stays behind, what was there at the peak."""
    ink = device_ink(facts.name)
    room = max(facts.total - facts.used, 0)
    near = 0 < room < _NEAR * facts.peak
    base = top + _PANEL
    unit = -_PANEL / max(facts.peak * 1.45, room * 1.1 if near else 1)
    steps = [
        (ns, bytes_ * unit, left * unit) for ns, bytes_, left in highest(facts.steps, int(pen.end), _STEPS)
    ]
    whole = steps_area(((ns, base + high) for ns, high, _ in steps), base, pen.end)
    pen.area(whole, Look(ink.light, 0.5, over=ink.hatch))
    if facts.left:
        pen.area(steps_area(((ns, base + left) for ns, _, left in steps), base, pen.end), Look(ALARM.light))
    pen.line(whole[1:-1], Look(ink.light), 1.4)
    pen.line([(0, base), (pen.end, base)], Look("#bbbbbb"), 0.8)
    if near:
        pen.line([(0, base + room * unit), (pen.end, base + room * unit)], Look(INK), 1)
    of = f"{'╌ ' if near else ''}of {size(facts.total)}" if facts.total else ""
    before = f"{size(facts.used)} before" if facts.used else ""
    said = (clip(facts.label, 20), f"peak {size(facts.peak)}", of, before)
    for number, words in enumerate(said):
        first = number == 0
        colour = INK if number < 2 else DIM
        pen.words(words, 0, top + 18 + 21 * number, right=-8, align="end", bold=first, colour=colour)
    if facts.peak:
        pen.marks([(facts.peak_ns, base + facts.peak * unit)], "v", Look(INK))
        words = clip(f"{size(facts.peak)}: {sums_text(facts.at_peak)}", int(pen.plot / width_of("x")))
        wide = width_of(words) / pen.plot * pen.end
        start = min(max(facts.peak_ns - wide / 2, 0), max(pen.end - wide, 0))
        pen.words(words, start, base + facts.peak * unit - 13)
    if facts.left:
        y = base + facts.left * unit
        pen.words(f"{size(facts.left)} left behind", pen.end, y, right=6, colour=LEFT_BEHIND, bold=True)


def _signs(record: Lifetimes, groups: Sequence[LifeGroup]) -> list[tuple[Look | str, str]]:
    """What colours, ticks and lines mean: only what is in the picture."""
    rows = [row for group in groups for row in group.rows]
    inks = {row.device: row_ink(row) for row in rows if row.device}
    devices = sorted(inks, key=lambda name: (name.startswith("cpu"), name))[:_INKS]
    signs: list[tuple[Look | str, str]] = [
        (Look(inks[name].light, over=inks[name].hatch), clip(device_label(record, name), 24))
        for name in devices
    ]
    singles = [life for row in rows if not row.folded for life in row.lives]
    ids = {life.id for life in singles}
    for how in sorted({life.how for life in singles if life.source in ids}, reverse=True):
        signs.append(("→", "transfer") if how == "transfer" else ("⇢", "copy"))
    if any(life.stays for life in singles):
        signs.append(("|", "handed on"))
    if any(life.died < 0 for row in rows for life in row.lives):
        signs.append(("▸", "still alive"))
    if any(row.folded for row in rows):
        signs.append(("≤", "many blocks in one row: bytes over time"))
    return signs
