"""Makes the widget of a timeline where one can live: in a kernel that has anywidget."""

from __future__ import annotations

import importlib.util
import sys
from collections import deque
from typing import Any

from bls_notebook.display.timeline.figure import Critical

__all__ = ["live_timeline"]

# Each holds its session in the kernel and in the page. The older ones go back to being pictures.
_MOST = 12
_alive: deque[Any] = deque()


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
        Of those made here the last dozen stay alive.
    """
    if not _in_kernel() or importlib.util.find_spec("anywidget") is None:
        return None
    from bls_notebook.display.timeline.widget import Timeline

    widget = Timeline(session, other, critical=critical, lit=critical is not None, titled=titled)
    _alive.append(widget)
    while len(_alive) > _MOST:
        _alive.popleft().close()
    return widget


def _in_kernel() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None
