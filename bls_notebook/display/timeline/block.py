"""The timeline inside a display: its lines, its picture, and the widget that may cover it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bls_notebook.display.browser.on_top import covered
from bls_notebook.display.document import Both
from bls_notebook.display.timeline.picture import timeline_picture
from bls_notebook.display.timeline.text import timeline_lines
from bls_notebook.observe.records.profiles.session import Session


def timeline_block(sessions: Sequence[Session], *, widget: Any = None, gap: bool = False) -> Both:
    """Draw one session, or two on one axis, for a document whose styles have ``figure``.

    Parameters
    ----------
    sessions : sequence of Session
        The second one is drawn below the first, on the same scale.
    widget : Timeline, optional
        What covers the picture: `live_timeline` makes one.
    gap : bool
        Whether the lines of text have an empty line above and below.

    Returns
    -------
    Both
        Lines of text, and the picture.
    """

    def lines(width: int) -> list[str]:
        return [""] * gap + timeline_lines(sessions, width=width) + [""] * gap

    picture = timeline_picture(*sessions)
    return Both(lines, picture if widget is None else covered(picture, widget))
