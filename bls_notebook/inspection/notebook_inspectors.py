"""Inspectors in a notebook: they cover an inspected value, and buttons under responses and models open them.

A button has only a weak reference to its response, so it keeps no memory alive.
"""

from __future__ import annotations

import sys
import uuid
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import bls_notebook as bls
from bls_notebook import display as displays
from bls_notebook.display.html import Html, tag
from bls_notebook.display.widgets import can_live, covered, live
from bls_notebook.magics.notebook import Notebook
from bls_notebook.records.visible_text import first_line

MOST = 500  # buttons that still work; older ones are forgotten

Inspect = Callable[..., Any]
_GONE = "this response was freed: run the cell again"


class Inspectors:
    """Inspectors and buttons of one shell."""

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook
        self._key = uuid.uuid4().hex
        self._numbers = count()
        self._behind: dict[str, Callable[[], Any]] = {}  # by button, a function that returns its value
        self._open: dict[str, Any] = {}
        self._buttons: Any = None

    def added(self, shown: displays.Display, value: Any) -> displays.Display:
        """Return the display covered by an inspector or with a place for a button; unchanged if widgets do not work."""
        from bls_notebook.records.repository import ModelRecord  # first needed here

        if not (self._notebook.settings.widgets and can_live()):
            return shown
        if isinstance(value, bls.Response):
            return replace(shown, html=shown.html + self._button(weakref.ref(value)))
        if isinstance(value, ModelRecord) and value.state == "READY":
            return replace(shown, html=shown.html + self._button(partial(str, value.name)))
        inspection = sys.modules.get("bls_notebook.inspection.inspection")  # slow to import; loaded if one exists
        if inspection is not None and isinstance(value, inspection.Inspection):
            widget = self._widget(value.asked, first=value)
            return replace(shown, html=covered(Html(shown.html), widget), widget=widget)
        return shown

    def _button(self, behind: Callable[[], Any]) -> Html:
        place = f"{self._key}-{next(self._numbers)}"
        self._behind[place] = behind
        if len(self._behind) > MOST:
            self._behind.pop(next(iter(self._behind)))
        return tag("div", **{"data-bls-inspect": place})

    def _widget(self, inspect: Inspect, place: str = "", first: Any = None) -> Any:
        def make() -> Any:
            from .inspector_widget import Inspector

            return Inspector(answering(inspect, self._notebook.settings.width, first), place)

        return live(make)

    def after_cell(self, result: Any = None) -> None:
        """Create the buttons after the first cell that shows one: importing widgets is slow."""
        if self._behind and self._buttons is None:
            from .inspector_widget import Buttons

            self._buttons = Buttons(self._key, self._pressed)

    def _pressed(self, place: str) -> str:
        """Open an inspector; return an error message if that fails."""

        def inspect(**asked: Any) -> Any:
            value = self._behind.get(place, lambda: None)()
            if value is None:
                raise bls.BLSError(_GONE)
            from .inspection import Inspection  # slow to import

            return Inspection(value, **asked)

        try:
            opened = self._widget(inspect, place)
        except Exception as error:  # shown beside the button
            return first_line(str(error))
        before = self._open.pop(place, None)
        if before is not None:
            before.close()
        self._open[place] = opened
        return ""

    def close(self) -> None:
        """Remove the buttons."""
        if self._buttons is not None:
            self._buttons.close()


def answering(
    inspect: Inspect, width: int, first: Any = None
) -> Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]:
    """Return a function from a widget's query to HTML and the state of its controls.

    The reply to the first, empty query is `first`, if given.
    """
    known: dict[str, Any] = {}

    def answer(question: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        asked: dict[str, Any] = {key: question[key] for key in ("tensor", "at") if key in question}
        rate = question.get("rate") or None
        try:
            inspection = first if first is not None and not question else inspect(**asked, rate=rate)
            html = displays.render(inspection.record, width=width).html
        except Exception as error:  # an error appears in the widget and fails no cell
            if not known:
                raise
            return "", {**known, **asked, "rate": rate or 0, "said": first_line(str(error))}
        known.update(_state(inspection))
        return html, dict(known)

    return answer


def _state(inspection: Any) -> dict[str, Any]:
    views = getattr(inspection.record, "tensors", (inspection.record,))
    return {
        "tensors": [[name, list(dims)] for name, dims in inspection.tensors.items()],
        "tensor": inspection.tensor,
        "at": inspection.at,
        "rate": inspection.rate or 0,
        "sound": any(getattr(view, "sound", None) is not None for view in views),
        "again": isinstance(inspection.value, str),  # a model can be queried again
        "said": "",
    }


def add_inspectors(notebook: Notebook) -> Callable[[], None]:
    """Show buttons under responses and models; return a function that removes them."""
    inspectors = Inspectors(notebook)
    notebook.on_draw.append(inspectors.added)
    events: Any = notebook.shell.events
    events.register("post_run_cell", inspectors.after_cell)

    def remove() -> None:
        events.unregister("post_run_cell", inspectors.after_cell)
        notebook.on_draw.remove(inspectors.added)
        inspectors.close()

    return remove
