"""What the colours and signs of the timeline's figure mean: only what is in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bls_notebook.display.palette import ALARM, Ink
from bls_notebook.display.text import clip
from bls_notebook.display.timeline.figure_parts import DIM, INK, PLOT, width_of, write
from bls_notebook.observe.records.session import Session

__all__ = ["LEGEND", "draw_legend"]

LEGEND = 0.27  # inches of its height
_MODELS = 8


def draw_legend(axes: Any, sessions: Sequence[Session], inks: dict[str, Ink], *, lit: bool) -> None:
    """Draw the legend into axes of the height `LEGEND`."""
    from matplotlib.patches import Rectangle

    axes.set_axis_off()
    axes.set_xlim(0, PLOT)
    axes.set_ylim(0, LEGEND)
    middle, x = LEGEND / 2, 0.0

    def sign(text: str, **look: Any) -> None:
        nonlocal x
        axes.add_patch(Rectangle((x, middle - 0.055), 0.2, 0.11, **{"linewidth": 0, **look}))
        say(text, 0.2)

    def say(text: str, width: float) -> None:
        nonlocal x
        write(axes, text, (x + width + 0.06, middle), (0, 0), color="#444444", fontsize=8)
        x += width + 0.06 + width_of(text, 8) + 0.12

    spans = [span for session in sessions for span in session.spans]
    for name in sorted(inks)[:_MODELS]:
        sign(clip(name, 22), facecolor=inks[name].light, hatch=inks[name].hatch or None, edgecolor="white")
    if any(span.queued < span.started for span in spans):
        sign("queued", facecolor="none", hatch="//////", edgecolor=DIM)
    if any(span.parent for span in spans):
        sign("its calls run", facecolor="#b5b5b5", alpha=0.5)
    if any(span.marks for span in spans):
        axes.plot([x + 0.05], [middle], marker="v", markersize=3.5, color=INK)
        say("a response", 0.1)
    if any(span.state == "error" for span in spans):
        sign("error", facecolor="none", edgecolor=ALARM.light, linewidth=1.2)
    if lit:
        axes.plot([x, x + 0.2], [middle, middle], color=INK, linewidth=1.1)
        say("critical path", 0.2)
