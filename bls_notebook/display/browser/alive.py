"""Makes widgets where they can live: in a kernel that has anywidget."""

from __future__ import annotations

import importlib.util
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

# Each holds its data in the kernel and in the page. The older ones go back to being pictures.
_MOST = 24
_alive: deque[Any] = deque()


def has_kernel() -> bool:
    """Whether this is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def can_live() -> bool:
    """Whether a widget can be shown: there is a kernel, and anywidget is installed."""
    return has_kernel() and importlib.util.find_spec("anywidget") is not None


def live(make: Callable[[], Any]) -> Any:
    """Return a widget for display on top of its picture; None where none can live, or `make` returns None.

    Of those made here the last two dozen stay alive.
    """
    if not can_live():
        return None
    widget = make()
    if widget is None:
        return None
    _alive.append(widget)
    while len(_alive) > _MOST:
        _alive.popleft().close()
    return widget
