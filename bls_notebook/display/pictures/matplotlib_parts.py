"""Figures of matplotlib: the same for the same record, whatever the notebook has set.

matplotlib is imported when the first figure is made.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from bls_notebook.observe.visible import visible


@contextmanager
def drawing() -> Iterator[None]:
    """Make figures in here: by matplotlib's defaults, not the notebook's settings, and equal in every run."""
    import matplotlib

    fixed = {
        "font.family": ["DejaVu Sans"],  # comes with matplotlib: the same widths everywhere
        "hatch.linewidth": 0.7,
        "svg.fonttype": "path",
        "svg.hashsalt": "bls_notebook",
    }
    # Not the backend, which would be loaded, nor what is deprecated.
    kept = {"backend", "backend_fallback", "interactive", "toolbar", "timezone", "webagg.open_in_browser"}
    defaults = {key: value for key, value in matplotlib.rcParamsDefault.items() if key not in kept}
    with matplotlib.rc_context({**defaults, **fixed}):
        yield


def drawn(text: str) -> str:
    """Return text as a figure can show it: one line, and U+FFFD for what the font does not have."""
    shown = visible(text)
    return shown if shown.isascii() else "".join(c if _in_font(ord(c)) else "\ufffd" for c in shown)


@functools.cache
def _font() -> frozenset[int]:
    from matplotlib import font_manager, ft2font

    return frozenset(ft2font.FT2Font(font_manager.findfont("DejaVu Sans")).get_charmap())


def _in_font(code: int) -> bool:
    return code in _font()
