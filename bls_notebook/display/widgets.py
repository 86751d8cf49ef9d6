"""Widgets: their JavaScript files, their creation if the kernel has anywidget, and columns of binary data.

A widget covers a static picture, which a notebook shows without a kernel.
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
    """Pack columns of numbers into one little-endian buffer; return it with its layout.

    Each column has the type of its numbers (f8, f4, u4, i4, u2 or u1) and the numbers; type ``n`` selects the narrowest
    type for whole numbers. The layout, (name, type, offset, count) for each column, is read by ``columns`` in
    ``widgets/common.js``. Offsets are multiples of 8, so that the browser needs no copy.
    """
    data = bytearray()
    layout: list[tuple[str, str, int, int]] = []
    for name, (kind, numbers) in columns.items():
        numbers = numbers if hasattr(numbers, "__len__") else list(numbers)
        kind = _narrowest(np.asarray(numbers, np.float64)) if kind == "n" else kind
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
    """Numbers texts in the order of their first use: a column has the numbers, and each text is sent once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def of(self, texts: Iterable[str]) -> list[int]:
        numbers = self.numbers
        return [numbers.setdefault(text, len(numbers)) for text in texts]

    @property
    def shown(self) -> list[str]:
        """The texts by their number, with invisible characters as escapes."""
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
    """Return the text of a widget's file, with its imports replaced by the imported modules."""
    included: set[str] = set()

    def inlined(file: str) -> str:
        def imported(match: re.Match[str]) -> str:
            if match[1] in included:
                return ""
            included.add(match[1])
            return _EXPORT.sub("", inlined(match[1])) + "\n"

        return _IMPORT.sub(imported, widget_file(file).read_text(encoding="utf-8"))

    return inlined(name)


# Each widget keeps its data in the kernel and in the page, so older ones are closed and become pictures again.
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
    """Return the widget from `make`; None if `make` returns None, or without a kernel or anywidget.

    In a kernel with another comm manager than ipykernel's, such as a hosted one, a widget that cannot be created is
    None too: its picture suffices. The last 24 widgets stay alive.
    """
    if not can_live():
        return None
    try:
        widget = make()
    except Exception:
        manager: Any = sys.modules["comm"].get_comm_manager() if "comm" in sys.modules else None
        if type(manager).__module__.startswith("ipykernel"):
            raise
        return None
    if widget is None:
        return None
    _alive.append(widget)
    while len(_alive) > _MOST:
        _alive.popleft().close()
    return widget


VIEW = "application/vnd.jupyter.widget-view+json"


def new_place() -> str:
    """Return a unique name for the place of a picture: the widget's trait ``place``."""
    return uuid.uuid4().hex


def covered(picture: Html, widget: Any) -> Html:
    """Put a picture into an element that the widget finds by its trait ``place`` and covers."""
    return tag("div", picture, **{"data-bls-place": widget.place})


def with_view(bundle: dict[str, Any], widget: Any) -> dict[str, Any]:
    """Add the widget's view to a MIME bundle, for the frontends that need it (VS Code and Colab).

    They show it in place of the HTML, so a widget that covers a part gets all of it as its trait ``report``.
    """
    if widget is None or not ("google.colab" in sys.modules or any(name.startswith("VSCODE_") for name in os.environ)):
        return bundle
    if widget.has_trait("report"):
        widget.report = bundle.get("text/html", "")
    return {**bundle, VIEW: {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}}
