"""Widgets of the inspector (a view with controls above it) and of the watch.

Importing this module imports anywidget (the extra ``widgets``).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

from bls_notebook.display import model_inks, new_place, widget_source
from bls_notebook.records import visible

from .records import ModelNow, WatchRecord

InspectorAnswer = Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]


class Inspector(anywidget.AnyWidget):
    """An inspection with controls to change its tensor, slice and rate.

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

    def __init__(self, answer: InspectorAnswer) -> None:
        self._answer = answer
        html, state = answer({})
        super().__init__(place=new_place(), html=html, state=state)

    @traitlets.observe("ask")
    def _asked(self, change: Any) -> None:
        html, state = self._answer(self.ask)
        with self.hold_sync():
            self.html, self.state = html or self.html, state
            self.answered = str(self.ask.get("number", ""))


_KEPT = 120  # samples that the page draws as lines


class WatchWidget(anywidget.AnyWidget):
    """The panel of a `Watch`; it samples until its last view is closed."""

    _esm = widget_source("watch.js")
    _css = widget_source("chart.css") + widget_source("watch.css")

    place = traitlets.Unicode().tag(sync=True)
    now = traitlets.Dict().tag(sync=True)
    rest: Any = traitlets.List().tag(sync=True)  # models that were never loaded; they rarely change
    past = traitlets.Dict().tag(sync=True)  # earlier samples, for a view opened later; see `get_state`

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._numbers: dict[tuple[str, int], int] = {}
        self._past: dict[int, deque[list[float | None]]] = defaultdict(lambda: deque(maxlen=_KEPT))
        self._end: Any = None
        super().__init__(place=new_place())
        if hasattr(self.comm, "_reply_subshell_for"):
            # Messages to the main shell wait until the running cell has ended. The page's own subshell
            # handles the buttons immediately.
            self.comm._reply_subshell_for = lambda data, default: default
        self.on_msg(self._message)
        self._begin()

    def _begin(self) -> None:
        if self._end is None:
            self._end = self._watch.follow(self._show)

    def _rest(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            end()

    def close(self) -> None:
        """Close the panel and stop sampling."""
        self._rest()
        super().close()

    def _message(self, _: Any, content: Any, buffers: Any) -> None:
        if not isinstance(content, dict):
            return
        if content.get("views") == 0:
            self._rest()
        elif self.comm is not None:
            self._begin()
        if "verb" in content:
            self._act(str(content["verb"]), content.get("id"))

    def _act(self, verb: str, number: Any) -> None:
        name = next((name for (name, _), known in self._numbers.items() if known == number), None)
        if name is None:
            return

        def done(problem: str) -> None:
            self.send({"done": number, "verb": verb, "problem": visible(problem, lines=True)})

        self.send({"begun": number})
        self._watch.act(verb, name, done)

    def _show(self, record: WatchRecord) -> None:
        used = [model for model in record.models if model.in_use]
        inks = model_inks(model.name for model in used)
        rows = []
        for model in used:
            row = self._row(model)
            ink = inks[model.name]
            rows.append({**row, "ink": [ink.light, ink.dark]})
            self._past[row["id"]].append([row["rate"], row["errors"], row["p50"], row["p99"]])
        for known in self._past.keys() - {row["id"] for row in rows}:
            del self._past[known]
        self.rest = [self._row(model) for model in record.models if not model.in_use]
        devices = [{**d.to_dict(), "hardware": visible(d.hardware)} for d in record.devices]
        self.now = {
            "at": record.at, "place": visible(record.place), "rows": rows, "devices": devices,
            "closed": record.closed, "seconds": self._watch.seconds,
        }  # fmt: skip

    def _row(self, model: ModelNow) -> dict[str, Any]:
        number = self._numbers.setdefault((model.name, model.version), len(self._numbers))
        words = {"name": visible(model.name), "reason": visible(model.reason, lines=True)}
        return {**model.to_dict(), **words, "id": number}

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:
        """Return the state; a full state (`key` None) includes the past, which updates omit."""
        state = super().get_state(key, drop_defaults)
        if key is None:
            state["past"] = {str(number): list(rows) for number, rows in list(self._past.items())}
        return state
