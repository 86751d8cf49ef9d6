"""Widgets: find their browser half, create them if the kernel has anywidget, and pack their data as columns
of bytes.

The static picture stays beneath: a notebook shows it wherever there is no kernel.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.records.visible_text import visible

from .html import Html, tag


def pack_columns(columns: Mapping[str, tuple[str, Any]]) -> tuple[bytes, list[tuple[str, str, int, int]]]:
    """Put columns of numbers into one piece of bytes, little-endian; return it, and where each column is in
    it.

    Each name has the type of its numbers (f8, f4, u4, i4, u2 or u1) and the numbers; of type n are whole
    numbers that get the narrowest type which has room for all of them. The layout, (name, type, offset,
    count), is what ``columns`` in ``widgets/common.js`` asks for: each begins at a multiple of 8, so that the
    browser needs no copy.
    """
    data = bytearray()
    layout: list[tuple[str, str, int, int]] = []
    for name, (given, numbers) in columns.items():
        numbers = numbers if hasattr(numbers, "__len__") else list(numbers)
        kind = _narrowest(np.asarray(numbers, np.float64)) if given == "n" else given
        column = np.asarray(numbers, f"<{kind}")
        data += bytes(-len(data) % 8)
        layout.append((name, kind, len(data), len(column)))
        data += column.tobytes()
    return bytes(data), layout


def _narrowest(numbers: Any) -> str:
    low, high = numbers.min(initial=0), numbers.max(initial=0)
    if low < 0:
        return "i4" if low >= -(1 << 31) and high < 1 << 31 else "f8"
    return next((f"u{size}" for size in (1, 2, 4) if high < 1 << 8 * size), "f8")


class Names:
    """Numbers for texts, in the order in which they come: a column has the numbers, each text goes once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def of(self, texts: Iterable[str]) -> list[int]:
        """Return the numbers of texts."""
        numbers = self.numbers
        return [numbers.setdefault(text, len(numbers)) for text in texts]

    @property
    def shown(self) -> list[str]:
        """The texts, made visible, by their number."""
        return [visible(text) for text in self.numbers]


_IMPORT = re.compile(r'^import\s*(?:\{[^}]*\}\s*from\s*)?["\']\./([\w.-]+)["\'];?[ \t]*\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|const|let|class)", re.MULTILINE)


def widget_file(name: str) -> Path:
    """Return the path of a file of the widgets, such as ``timeline.js``."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "widgets", package.parent / "widgets"):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"widget file {name!r} is missing from {package / 'widgets'}; install bls_notebook again")


@cache
def widget_source(name: str) -> str:
    """Return the text of a file of the widgets, with the modules that it imports put in place."""
    included: set[str] = set()

    def inlined(file: str) -> str:
        def other(match: re.Match[str]) -> str:
            if match[1] in included:
                return ""
            included.add(match[1])
            return _EXPORT.sub("", inlined(match[1])) + "\n"

        return _IMPORT.sub(other, widget_file(file).read_text(encoding="utf-8"))

    return inlined(name)


# Each holds its data in the kernel and in the page. The older ones go back to being pictures.
_MOST = 24
_alive: deque[Any] = deque()


def has_kernel() -> bool:
    """Return whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def can_live() -> bool:
    """Return whether a widget can be shown: in a kernel with anywidget installed."""
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


VIEW = "application/vnd.jupyter.widget-view+json"


def new_place() -> str:
    """Return a name for the place of a picture: the widget's trait ``place``."""
    return uuid.uuid4().hex


def covered(picture: Html, widget: Any) -> Html:
    """Put a picture into the place that a widget, by its trait ``place``, covers."""
    return tag("div", picture, **{"data-bls-place": widget.place})


def with_view(bundle: dict[str, Any], widget: Any) -> dict[str, Any]:
    """Add the widget's view to a bundle for frontends that need it."""
    if widget is None or not _wants_views():
        return bundle
    view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    return {**bundle, VIEW: view}


def _wants_views() -> bool:
    return "google.colab" in sys.modules or any(name.startswith("VSCODE_") for name in os.environ)
