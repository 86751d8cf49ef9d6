"""The panel of one device: its bytes over time, what stays behind of them, and what was there at the peak."""

from __future__ import annotations

from typing import Any

from bls_notebook.display.lifetimes.facts import DeviceFacts, sums_text
from bls_notebook.display.lifetimes.lanes import highest
from bls_notebook.display.palette import ALARM, device_ink
from bls_notebook.display.svg import drawn
from bls_notebook.display.text import clip
from bls_notebook.display.units import size

__all__ = ["draw_bytes"]

_MOST = 700  # steps of the line; of more, the highest stay
INK, DIM = "#222222", "#666666"


def draw_bytes(axes: Any, facts: DeviceFacts, end: int) -> None:
    """Draw the panel of one device."""
    ink = device_ink(facts.name)
    steps = highest([*facts.steps, (end, *facts.steps[-1][1:])], end, _MOST)
    times, totals, left = zip(*steps, strict=True)
    axes.fill_between(
        times,
        totals,
        left,
        step="post",
        facecolor=ink.light,
        edgecolor="white",
        hatch=ink.hatch,
        linewidth=0,
        alpha=0.55,
    )
    if facts.alive:
        axes.fill_between(times, left, step="post", facecolor=ALARM.light, linewidth=0)
    axes.step(times, totals, where="post", color=ink.light, linewidth=1.3)
    top = facts.peak * 1.42 or 1
    axes.set_ylim(0, top)
    _frame(axes)
    _names(axes, facts)
    _peak(axes, facts, end, top)
    if facts.alive:
        axes.annotate(
            f"{size(facts.alive)} left behind", (1, facts.alive / top), xycoords="axes fraction",
            xytext=(6, 0), textcoords="offset points", va="center", fontsize=8.5, color="#b34700",
            fontweight="bold", annotation_clip=False,
        )  # fmt: skip


def _frame(axes: Any) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#bbbbbb")
    axes.tick_params(axis="x", labelbottom=False, length=0)
    axes.set_yticks([])


def _names(axes: Any, facts: DeviceFacts) -> None:
    of = f"of {size(facts.total)}" if facts.total else "capacity not known"
    lines = [
        (0.80, clip(drawn(facts.label), 24), "bold", INK, 9.5),
        (0.53, f"peak {size(facts.peak)}", "normal", INK, 8.5),
        (0.30, of, "normal", DIM, 8.5),
    ]
    for y, text, weight, colour, points in lines:
        axes.annotate(
            text, (0, y), xycoords="axes fraction", xytext=(-8, 0), textcoords="offset points", ha="right",
            va="center", fontsize=points, fontweight=weight, color=colour, parse_math=False, annotation_clip=False,
        )  # fmt: skip


def _peak(axes: Any, facts: DeviceFacts, end: int, top: float) -> None:
    """Say what was alive at the peak, on the side of it where there is room."""
    if not facts.peak:
        return
    axes.plot([facts.peak_ns], [facts.peak], marker="v", markersize=5, color=INK, clip_on=False, zorder=5)
    at = facts.peak_ns / end
    text = drawn(clip(sums_text(facts.at_peak), 84))
    side = "left" if at < 0.35 else "right" if at > 0.65 else "center"
    shift = {"left": -4, "right": 4, "center": 0}[side]
    axes.annotate(
        f"{size(facts.peak)}: {text}", (facts.peak_ns, facts.peak), xytext=(shift, 6),
        textcoords="offset points", ha=side, va="bottom", fontsize=8.5, color=INK, parse_math=False,
        annotation_clip=False,
    )  # fmt: skip
