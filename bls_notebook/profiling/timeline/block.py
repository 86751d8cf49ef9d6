"""The timeline inside a display: its lines, its picture, and the widget that may cover it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bls_notebook.display.browser.on_top import covered
from bls_notebook.display.document import Both
from bls_notebook.profiling.records.session import Session

from .picture import timeline_picture
from .text import timeline_lines


def timeline_block(sessions: Sequence[Session], *, widget: Any = None, gap: bool = False) -> Both:
    """Draw one session, or a second one below it on the same scale, for a document whose styles have
    ``figure``.

    ``widget`` is what covers the picture, as `live_timeline` makes it; with a ``gap`` the lines of text have
    an empty line above and below.
    """

    def lines(width: int) -> list[str]:
        return [""] * gap + timeline_lines(sessions, width=width) + [""] * gap

    picture = timeline_picture(*sessions)
    return Both(lines, picture if widget is None else covered(picture, widget))
