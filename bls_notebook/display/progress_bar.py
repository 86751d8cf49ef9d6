"""Progress bars: in a notebook, a display that disappears at the end; in a terminal, tqdm's bar.

tqdm's widget for notebooks would leave its text in the saved notebook.
"""

from __future__ import annotations

import sys
import threading
import uuid
from typing import Any

from bls_notebook.display.as_html import output
from bls_notebook.display.html import Html, tag
from bls_notebook.progress import Bar
from bls_notebook.records.visible_text import visible


def new_bar() -> Bar | None:
    """Return a bar, or None in scripts."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    kernel = getattr(shell, "kernel", None)
    if shell is None or kernel is None:
        return _InTerminal() if sys.stderr is not None and sys.stderr.isatty() else None
    # nbconvert, papermill and nbval allow no input, so no person watches.
    has_input = getattr(kernel, "_allow_stdin", False)
    return _InCell(shell) if has_input and hasattr(shell.display_pub, "pub_socket") else None


def bar_html(words: str, part: float | None) -> Html:
    """Draw a progress bar with its text; `part` is the finished fraction, None if unknown."""
    done = tag("i") if part is None else tag("span", style=f"width:{100 * part:.1f}%")
    bar = tag("div", done, cls="progress-bar", role="progressbar", **{"aria-label": words})
    return output(tag("div", bar, tag("span", words, cls="progress-words"), cls="progress-line"), styles="progress")


class _InCell:
    """A display of the running cell."""

    def __init__(self, shell: Any) -> None:
        self._publisher = shell.display_pub
        self._id = uuid.uuid4().hex
        self._shown = False
        self._lock = threading.Lock()  # keeps `close` after a running `show`

    def show(self, words: str, part: float | None) -> None:
        self._publish({"text/plain": visible(words), "text/html": bar_html(words, part)})

    def close(self) -> None:
        if self._shown:
            self._publish({})

    def _publish(self, data: dict[str, str]) -> None:
        with self._lock:
            transient = {"display_id": self._id}
            self._publisher.publish(data=data, metadata={}, transient=transient, update=self._shown)
            self._shown = True


class _InTerminal:
    """A line of tqdm, beside tqdm's other bars."""

    def __init__(self) -> None:
        from tqdm import tqdm

        self._bar: Any = tqdm(total=1000, bar_format="{desc}", leave=False, dynamic_ncols=True, file=sys.stderr)

    def show(self, words: str, part: float | None) -> None:
        bar = self._bar
        bar.bar_format = "{desc}" if part is None else "{bar:24} {desc}"
        bar.n = round(1000 * (part or 0.0))
        bar.set_description_str(visible(words))

    def close(self) -> None:
        self._bar.close()
