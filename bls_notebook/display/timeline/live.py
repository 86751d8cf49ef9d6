"""Makes the widget of a timeline where one can live: in a kernel that has anywidget."""

from __future__ import annotations

from typing import Any

from bls_notebook.display.browser.alive import live
from bls_notebook.display.timeline.picture import Critical

__all__ = ["live_timeline"]


def live_timeline(
    session: Any, other: Any = None, *, critical: Critical | None = None, titled: bool = True
) -> Any:
    """Return a `Timeline` for display on top of a picture, or None where there is no kernel or no anywidget.

    Parameters
    ----------
    session, other : Session
    critical : sequence of (iterable of Step), optional
        Critical paths that are known already, to be lit from the start.
    titled : bool
        Whether a session alone has its name and figures above it.

    Returns
    -------
    Timeline or None
        See `live` for how long it lives.
    """

    def make() -> Any:
        from bls_notebook.display.timeline.widget import Timeline

        return Timeline(session, other, critical=critical, lit=critical is not None, titled=titled)

    return live(make)
