"""The lives of a track as a picture: bytes over time on each device, and below it a bar for each block.

One time axis for all of it. Colours are of models, the same ones as in every picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bls_notebook.display.palette import ALARM, Ink, model_inks
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
from bls_notebook.lifetimes.records import Life, Lifetimes, is_left_behind

from .bars import draw_lives, lives_height
from .facts import DeviceFacts, device_facts, end_of, stacked, sums_text
from .lanes import LifeGroup, highest, layout

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES, _LINES, _HOLDERS = 192.0, 44.0, 176.0  # px beside the time axis
_PANEL, _GAP, _AXIS = 90.0, 22.0, 24.0
_ROWS, _DEVICES, _INKS = 36, 4, 10
_STEPS = 300  # of a line; of more, the highest stay
_NEAR = 1.8  # a capacity less than so many peaks is drawn


def lifetimes_svg(record: Lifetimes) -> str:
    """Draw a memory track as an SVG document, as wide as its page: equal records give equal text."""
    pen = SvgPen(end_of(record), _side(record), _HOLDERS)
    return pen.document(*_draw(pen, record))


def lifetimes_figure(record: Lifetimes) -> Figure:
    """Draw a memory track with matplotlib, 10 inches wide and as high as its rows need.

    An ImportError where matplotlib is not installed.
    """
    from bls_notebook.display.pictures.plot import PlotPen

    pen = PlotPen(end_of(record), _side(record), _HOLDERS)
    return pen.figure(*_draw(pen, record))


def _side(record: Lifetimes) -> float:
    return _NAMES + (_LINES if any(life.line.line for life in record.lives) else 0)


def _draw(pen: Pen, record: Lifetimes) -> tuple[float, float]:
    """Draw everything, and return how high it is, and how far down the lines of the time axis go."""
    used = [facts for facts in device_facts(record) if facts.blocks]
    fullest = sorted(used, key=lambda each: -each.peak)[:_DEVICES]
    groups = layout(record, _ROWS)
    inks = model_inks(life.maker.model for life in record.lives)
    top = 6.0
    for facts in used:
        if facts in fullest:
            _draw_bytes(pen, facts, [life for life in record.lives if life.device == facts.name], inks, top)
            top += _PANEL + _GAP
    draw_lives(pen, groups, inks, top, _side(record))
    top += lives_height(groups)
    for x, words in pen.ticks:
        pen.words(words, x, top + 8, align="middle" if x else "start", size=10, colour="#555555")
    return legend_signs(pen, top + _AXIS, _signs(groups, inks)), top


def _draw_bytes(
    pen: Pen, facts: DeviceFacts, lives: Sequence[Life], inks: Mapping[str, Ink], top: float
) -> None:
    """The panel of one device: bytes over time by model, what stays behind, what was there at the peak."""
    room = max(facts.total - facts.used, 0)
    near = 0 < room < _NEAR * facts.peak
    base = top + _PANEL
    unit = -_PANEL / max(facts.peak * 1.45, room * 1.1 if near else 1)
    models = list(dict.fromkeys(life.maker.model for life in lives))
    steps = highest(stacked(lives, models), int(pen.end), _STEPS)
    for place, model in reversed([*enumerate(models, 3)]):  # each covers those below it
        area = steps_area(((step[0], base + step[place] * unit) for step in steps), base, pen.end)
        pen.area(area, Look("#ffffff"))
        pen.area(area, Look(inks[model].light, 0.75, over=inks[model].hatch))
    if facts.left:
        pen.area(
            steps_area(((step[0], base + step[2] * unit) for step in steps), base, pen.end), Look(ALARM.light)
        )
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


def _signs(groups: Sequence[LifeGroup], inks: Mapping[str, Ink]) -> list[tuple[Look | str, str]]:
    """What colours, ticks and lines mean: only what is in the picture."""
    rows = [row for group in groups for row in group.rows]
    signs: list[tuple[Look | str, str]] = [
        (Look(inks[group.model].light, over=inks[group.model].hatch), clip(group.label, 24))
        for group in groups[:_INKS]
        if group.model in inks
    ]
    if any(is_left_behind(life) for row in rows for life in row.lives):
        signs.append((Look(ALARM.light), "left behind"))
    if len({life.bytes for row in rows for life in row.lives}) > 1:
        signs.append(("↕", "higher: more bytes"))
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
