"""What the colours, ticks and arrows of the figure mean: only what is in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bls_notebook.display.lifetimes.facts import device_label
from bls_notebook.display.lifetimes.figure_lives import arrow, row_ink
from bls_notebook.display.lifetimes.figure_parts import DIM, INK, PLOT, width_of, write
from bls_notebook.display.lifetimes.lanes import Group
from bls_notebook.display.text import clip
from bls_notebook.observe.records.lifetimes import Lifetimes

__all__ = ["LEGEND", "draw_legend"]

LEGEND = 0.26  # inches of its height
_DEVICES = 4


def draw_legend(axes: Any, record: Lifetimes, groups: Sequence[Group]) -> None:
    """Draw the legend of `groups` into axes of the height `LEGEND`."""
    from matplotlib.patches import Rectangle

    axes.set_axis_off()
    axes.set_xlim(0, PLOT)
    axes.set_ylim(0, LEGEND)
    middle, x = LEGEND / 2, 0.0

    def say(text: str, sign: float = 0.26) -> None:
        nonlocal x
        write(axes, text, (x + sign + 0.06, middle), "data", (0, 0), color="#444444")
        x += sign + 0.06 + width_of(text) + 0.1

    rows = [row for group in groups for row in group.rows]
    inks = {row.device: row_ink(row) for row in rows if row.device}
    for device in sorted(inks, key=lambda name: (name.startswith("cpu"), name))[:_DEVICES]:
        look: dict[str, Any] = {
            "facecolor": inks[device].light,
            "hatch": inks[device].hatch,
            "edgecolor": "white",
            "linewidth": 0,
        }
        axes.add_patch(Rectangle((x, middle - 0.065), 0.26, 0.13, **look))
        say(clip(device_label(record, device), 24))
    singles = [life for row in rows if not row.folded for life in row.lives]
    ids = {life.id for life in singles}
    for how in sorted({life.how for life in singles if life.source in ids}, reverse=True):
        axes.annotate("", (x + 0.26, middle), xytext=(x, middle), arrowprops=arrow(how))
        say("transfer" if how == "transfer" else "copy")
    if any(life.stays for life in singles):
        axes.vlines([x + 0.05], middle - 0.08, middle + 0.08, color=INK, linewidth=1.2)
        say("handed on", 0.1)
    if any(life.died < 0 for row in rows for life in row.lives):
        axes.plot([x + 0.08], [middle], marker=">", color=DIM, markersize=6)
        say("still alive", 0.15)
    if any(row.folded for row in rows):
        say("≤ many blocks in one row: bytes over time", 0)
