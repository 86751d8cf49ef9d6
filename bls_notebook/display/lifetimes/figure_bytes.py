"""The panel of one device: its bytes over time, what stays behind of them, and what was there at the peak."""

from __future__ import annotations

from typing import Any

from bls_notebook.display.lifetimes.facts import DeviceFacts, sums_text
from bls_notebook.display.lifetimes.figure_parts import (
    DIM,
    INK,
    LEFT_BEHIND,
    PLOT,
    area,
    bare,
    width_of,
    write,
)
from bls_notebook.display.lifetimes.lanes import highest
from bls_notebook.display.palette import ALARM, device_ink
from bls_notebook.display.text import clip
from bls_notebook.display.units import size

__all__ = ["draw_bytes"]

_STEPS = 460  # of the line; of more, the highest stay
_NEAR = 1.8  # a capacity less than so many peaks is drawn


def draw_bytes(axes: Any, facts: DeviceFacts, end: int) -> None:
    """Draw the panel of one device.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Has the time axis already.
    facts : DeviceFacts
    end : int
        When the track ended, in nanoseconds.
    """
    ink = device_ink(facts.name)
    steps = highest(facts.steps, end, _STEPS)
    totals = [(step[0], step[1]) for step in steps]
    area(axes, totals, 0, end, facecolor=ink.light, edgecolor="white", hatch=ink.hatch, alpha=0.5)
    area(axes, [(step[0], step[2]) for step in steps], 0, end, facecolor=ALARM.light)
    totals.append((end, totals[-1][1]))
    axes.step(*zip(*totals, strict=True), where="post", color=ink.light, linewidth=1.2)
    room = max(facts.total - facts.used, 0)
    near = 0 < room < _NEAR * facts.peak
    top = max(facts.peak * 1.45, room * 1.1 if near else 1)
    axes.set_ylim(0, top)
    bare(axes)
    axes.tick_params(axis="x", labelbottom=False, length=0)
    if near:
        axes.axhline(room, color=INK, linewidth=1, linestyle=(0, (4, 2)))
    _names(axes, facts, near)
    if facts.peak:
        _peak(axes, facts, end, top)
    if facts.left:
        at = (1, facts.left / top)
        write(
            axes, f"{size(facts.left)} left behind", at, "axes fraction", (6, 0),
            color=LEFT_BEHIND, fontweight="bold",
        )  # fmt: skip


def _names(axes: Any, facts: DeviceFacts, near: bool) -> None:
    of = f"{'╌ ' if near else ''}of {size(facts.total)}" if facts.total else ""
    before = f"{size(facts.used)} before" if facts.used else ""
    device = clip(facts.label, 20)
    write(axes, device, (0, 0.80), "axes fraction", (-8, 0), ha="right", fontsize=9.5, fontweight="bold")
    write(axes, f"peak {size(facts.peak)}", (0, 0.53), "axes fraction", (-8, 0), ha="right")
    write(axes, of, (0, 0.30), "axes fraction", (-8, 0), ha="right", color=DIM)
    write(axes, before, (0, 0.09), "axes fraction", (-8, 0), ha="right", color=DIM)


def _peak(axes: Any, facts: DeviceFacts, end: int, top: float) -> None:
    """Say what was alive at the peak, above it, within the figure."""
    axes.plot([facts.peak_ns], [facts.peak], marker="v", markersize=5, color=INK, clip_on=False, zorder=5)
    text = f"{size(facts.peak)}: {clip(sums_text(facts.at_peak), 84)}"
    wide = width_of(text) / PLOT
    start = min(max(facts.peak_ns / end - wide / 2, 0), max(1 - wide, 0))
    write(axes, text, (start, facts.peak / top), "axes fraction", (0, 6), va="bottom")
