"""The timeline inside a display: its picture, and the widget that covers it while a kernel is there."""

from __future__ import annotations

from typing import Any

from bls_notebook.display.html import Html, prose, tag
from bls_notebook.display.on_top import covered
from bls_notebook.display.svg import can_plot
from bls_notebook.display.timeline.figure import Critical, timeline_picture
from bls_notebook.display.timeline.text import timeline_text
from bls_notebook.observe.records.session import Session

__all__ = ["timeline_html"]

_COLUMNS = 110


def timeline_html(
    session: Session, other: Session | None = None, *, critical: Critical | None = None, widget: Any = None
) -> Html:
    """Draw one session, or two on one axis, for a display whose stylesheet has ``figure``.

    Parameters
    ----------
    session, other : Session
        The other one is drawn below, on the same scale.
    critical : sequence of (iterable of Step), optional
        The critical path of each session, to be lit.
    widget : Timeline, optional
        What covers the picture: `live_timeline` makes one.

    Returns
    -------
    Html
        The picture; without matplotlib the timeline as text.
    """
    if can_plot():
        picture = timeline_picture(session, other, critical=critical)
    else:
        picture = tag("pre", prose(timeline_text(session, other, width=_COLUMNS)))
    return picture if widget is None else covered(picture, widget)
