"""The lives of a track as a figure: bytes over time on each device, and below it a bar for each block.

One time axis for all of it. Colours are of devices, with a hatch each for print without colour. The sizes
are inches, so that text never runs into text whatever the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bls_notebook.display.lifetimes.facts import DeviceFacts, device_facts, end_of
from bls_notebook.display.lifetimes.figure_bytes import draw_bytes
from bls_notebook.display.lifetimes.figure_legend import LEGEND, draw_legend
from bls_notebook.display.lifetimes.figure_lives import draw_lives, lives_height
from bls_notebook.display.lifetimes.figure_parts import PLOT, WIDTH
from bls_notebook.display.lifetimes.lanes import layout
from bls_notebook.display.pictures.matplotlib_parts import drawing, figure_svg
from bls_notebook.observe.records.lifetimes import Lifetimes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["lifetimes_figure", "lifetimes_svg"]

_LEFT = 1.9  # inches: the margin for names; on the right there is as much for holders
_PANEL, _GAP, _AXIS, _TOP = 0.95, 0.22, 0.36, 0.06
_ROWS, _DEVICES = 36, 4


def lifetimes_svg(record: Lifetimes) -> str:
    """Draw a memory track as an SVG document.

    Parameters
    ----------
    record : Lifetimes

    Returns
    -------
    str
        Equal records give equal text.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    return figure_svg(lifetimes_figure(record))


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
    with drawing():
        return _figure(record)


@dataclass(frozen=True)
class _Page:
    """Places axes from the top down, in inches."""

    figure: Figure
    height: float

    def axes(self, top: float, height: float, **given: Any) -> Any:
        box = (
            _LEFT / WIDTH,
            1 - (top + height) / self.height,
            PLOT / WIDTH,
            height / self.height,
        )
        return self.figure.add_axes(box, **given)


def _figure(record: Lifetimes) -> Figure:
    from matplotlib.figure import Figure

    devices = _shown(device_facts(record))
    groups = layout(record, _ROWS)
    rows = lives_height(groups)
    height = _TOP + len(devices) * (_PANEL + _GAP) + rows + _AXIS + LEGEND
    page = _Page(Figure(figsize=(WIDTH, height), facecolor="white"), height)
    end = end_of(record)
    top = _TOP
    shared: Any = None
    for facts in devices:
        shared = page.axes(top, _PANEL, sharex=shared)
        draw_bytes(shared, facts, end)
        top += _PANEL + _GAP
    lives = page.axes(top, max(rows, 0.01), sharex=shared)
    draw_lives(lives, groups, end)
    lives.set_xlim(0, end)
    _time_axis(lives, end)
    draw_legend(page.axes(top + rows + _AXIS, LEGEND), record, groups)
    return page.figure


def _shown(devices: list[DeviceFacts]) -> list[DeviceFacts]:
    """Return the devices that have a panel: those that had something, the fullest if there are many."""
    used = [facts for facts in devices if facts.blocks]
    fullest = sorted(used, key=lambda each: -each.peak)[:_DEVICES]
    return [facts for facts in used if facts in fullest]


def _time_axis(axes: Any, end: int) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    factor, unit = next((f, u) for f, u in ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns")) if end >= f)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda ns, _: f"{ns / factor:g} {unit}"))
    axes.tick_params(axis="x", labelsize=8.5, color="#999999", labelcolor="#444444", length=3)
