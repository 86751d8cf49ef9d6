"""Widgets of the inspector: a view with controls above it, and the buttons that open one.

Importing this module imports anywidget (the extra ``widgets``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

from bls_notebook.display.widgets import new_place, widget_source

Answer = Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]


class Inspector(anywidget.AnyWidget):
    """An inspection with controls to change its tensor, slice and rate; it covers a ``place``, by default a new one.

    ``answer`` takes a query of the browser (`tensor`, `at`, `rate`) and returns HTML and the state of the
    controls: ``tensors`` (names and shapes), the values of the query, whether there is a ``sound``, whether
    ``again`` may repeat the query, and the error message ``said`` about an invalid query.
    """

    _esm = widget_source("inspect.js")
    _css = widget_source("inspect.css")

    place = traitlets.Unicode().tag(sync=True)
    html = traitlets.Unicode().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)
    ask = traitlets.Dict().tag(sync=True)
    answered = traitlets.Unicode().tag(sync=True)

    def __init__(self, answer: Answer, place: str = "") -> None:
        self._answer = answer
        html, state = answer({})
        super().__init__(place=place or new_place(), html=html, state=state)

    @traitlets.observe("ask")
    def _asked(self, change: Any) -> None:
        html, state = self._answer(self.ask)
        with self.hold_sync():
            self.html, self.state = html or self.html, state
            self.answered = str(self.ask.get("number", ""))


class Buttons(anywidget.AnyWidget):
    """Puts a button into every place whose name begins with its ``key``.

    ``pressed`` is called with the place's name to open an inspector there; the button shows the error message that
    it returns.
    """

    _esm = widget_source("inspect_buttons.js")
    _css = widget_source("inspect.css")

    key = traitlets.Unicode().tag(sync=True)

    def __init__(self, key: str, pressed: Callable[[str], str]) -> None:
        super().__init__(key=key)
        self._pressed = pressed
        self.on_msg(self._message)

    def _message(self, widget: Any, content: Any, buffers: Any) -> None:
        place = str(content.get("id", ""))
        said = self._pressed(place)
        if said:
            self.send({"id": place, "said": said})
