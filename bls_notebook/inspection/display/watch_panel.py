"""The watch as a table, and as a live widget with buttons that load, unload and reload models.

The table also serves terminals and saved notebooks. Samples arrive on the watch's thread, so the panel
updates while a cell runs; it stops sampling when its last view is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
from collections import defaultdict, deque
from dataclasses import replace
from functools import cache
from time import localtime, strftime
from typing import Any

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.bundle import Display, display_of
from bls_notebook.display.html import Html, join, prose, tag
from bls_notebook.display.palette import model_inks
from bls_notebook.display.records.devices import devices_document
from bls_notebook.display.units import count
from bls_notebook.display.widgets import covered, has_kernel, new_place, widget_source
from bls_notebook.display.widgets import live as live_widget
from bls_notebook.inspection.records import ModelNow, WatchRecord
from bls_notebook.records.devices import DeviceTable
from bls_notebook.records.visible_text import visible

_NO_WIDGET = "this was one moment; for a live panel: pip install anywidget, then restart the kernel"


def watch_document(record: WatchRecord, missing: bool = False) -> doc.Document:
    """List the models with what each does; `missing` says that anywidget is not installed."""
    at = strftime("%H:%M:%S", localtime(record.at))
    title = doc.Line([parts.name(record.place), parts.quiet("closed" if record.closed else f"at {at}")])
    used = [model for model in record.models if model.in_use]
    heads = "model", "state", "busy", "queue", "answered", "failed", "p50", "p99"
    columns = [doc.Column(head, how.strip()) for head, how in zip(heads, "  rrrrtt", strict=True)]
    blocks: list[doc.Block] = [title]
    if used:
        caption = f"What the models of {record.place} do"
        blocks.append(doc.Table(caption, columns, list(map(_row, used)), indent="", most=40))
    rest = len(record.models) - len(used)
    if rest or not used:
        words = count(rest, "model") + " not loaded" if rest else "no models"
        blocks.append(doc.Words(parts.quiet(words)))
    devices = devices_document(DeviceTable(record.devices))
    blocks += devices.blocks[:1] if record.devices else []
    if missing:
        blocks.append(doc.Words(parts.quiet(_NO_WIDGET), gap=True))
    return doc.Document(blocks, styles=devices.styles)


def _row(model: ModelNow) -> doc.Row:
    version = f" version {model.version}" if model.version != 1 else ""
    name = doc.Piece(model.name + version, tag("span", parts.name(model.name).html, parts.quiet(version).html))
    if model.state != "READY":
        reason = doc.Piece(model.reason, tag("span", prose(model.reason), cls="dim"), cls="wrap", wide=6)
        return doc.Row([name, parts.state(model), reason])
    state, marks = parts.state(model), parts.stub(model.reason if model.reason.startswith("stub: ") else "")
    shown = [state, *marks]
    return doc.Row([
        name,
        doc.Piece(" ".join(each.text for each in shown), join(*(each.html for each in shown), by=" ")),
        f"{model.busy:,} of {model.instances:,}" if model.instances else "",
        f"{model.queue:,}",
        f"{model.answered:,}",
        f"{model.failed:,}",
        parts.time(None if model.p50 is None else model.p50 / 1e9),
        parts.time(None if model.p99 is None else model.p99 / 1e9),
    ])  # fmt: skip


_KEPT = 120  # looks, of which the page draws lines
_SILENT = 30  # looks without a word of the page, each in a moment when the kernel listened


def render_watch(watch: Any, *, width: int = 100, live: bool = True) -> Display:
    """Draw a `Watch`: a table of this moment, and a live panel on top of it where widgets can be."""
    record = watch.record
    widget = live_widget(lambda: watch_widget(watch)) if live and not record.closed else None
    missing = live and has_kernel() and importlib.util.find_spec("anywidget") is None
    display = display_of(watch_document(record, missing), width)
    if widget is None:
        return display
    return replace(display, html=covered(Html(display.html), widget), widget=widget)


def watch_widget(watch: Any) -> Any:
    """Make the panel of a `Watch`: an anywidget, which looks until it is closed or nobody sees it."""
    return _widget_class()(watch)


@cache
def _widget_class() -> Any:
    import anywidget
    import traitlets

    class WatchWidget(anywidget.AnyWidget):  # type: ignore[misc,unused-ignore]
        """The panel; see `watch_widget`."""

        _esm = widget_source("watch.js")
        _css = widget_source("chart.css") + widget_source("watch.css")

        place = traitlets.Unicode().tag(sync=True)
        now = traitlets.Dict().tag(sync=True)
        rest: Any = traitlets.List().tag(sync=True)  # models that nobody has loaded: these change seldom
        past = traitlets.Dict().tag(sync=True)  # of each model, for a page that comes later; see `get_state`

        def __init__(self, watch: Any) -> None:
            self._watch = watch
            self._numbers: dict[tuple[str, int], int] = {}
            self._past: dict[int, deque[list[float | None]]] = defaultdict(lambda: deque(maxlen=_KEPT))
            self._end: Any = None
            self._asked = False
            self._silent = 0
            self._loop: Any = None
            with contextlib.suppress(RuntimeError):  # what runs a cell has one
                self._loop = asyncio.get_running_loop()
            super().__init__(place=new_place())
            if hasattr(self.comm, "_reply_subshell_for"):
                # The loop that looks are sent on is that of the cells: it would hear of a button only when
                # the cell that runs has ended. The page's own subshell hears of it at once.
                self.comm._reply_subshell_for = lambda data, default: default
            self.on_msg(self._told)
            self._begin()

        # -- life --------------------------------------------------------------------------------------

        def _begin(self) -> None:
            self._silent = 0
            if self._end is None:
                self._end = self._watch.follow(self._show)

        def _rest(self) -> None:
            end, self._end = self._end, None
            if end is not None:
                end()

        def close(self) -> None:
            """End it."""
            self._rest()
            super().close()

        def _listen(self) -> None:
            """Count the looks since the page was heard, but not while the kernel is too busy to listen."""
            if self._loop is None or self._loop.is_closed():
                self._heard_nothing()
            elif not self._asked:
                self._asked = True
                self._loop.call_soon_threadsafe(self._heard_nothing)

        def _heard_nothing(self) -> None:
            self._asked = False
            self._silent += 1
            if self._silent > _SILENT:
                self._rest()

        def _told(self, _: Any, content: Any, buffers: Any) -> None:
            if not isinstance(content, dict):
                return
            self._silent = 0
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

        # -- what is shown -----------------------------------------------------------------------------

        def _show(self, record: WatchRecord) -> None:
            used = [model for model in record.models if model.in_use]
            inks = model_inks(model.name for model in used)
            rows = []
            for model in used:
                row = self._row(model)
                ink = inks[model.name]
                rows.append({**row, "ink": [ink.light, ink.dark]})
                self._past[row["id"]].append([row["rate"], row["errors"], row["p50"], row["p99"]])
            for number in self._past.keys() - {row["id"] for row in rows}:
                del self._past[number]
            self.rest = [self._row(model) for model in record.models if not model.in_use]
            devices = [{**d.to_dict(), "hardware": visible(d.hardware)} for d in record.devices]
            self.now = {
                "at": record.at, "place": visible(record.place), "rows": rows, "devices": devices,
                "closed": record.closed, "seconds": self._watch.seconds,
            }  # fmt: skip
            self._listen()

        def _row(self, model: ModelNow) -> dict[str, Any]:
            number = self._numbers.setdefault((model.name, model.version), len(self._numbers))
            words = {"name": visible(model.name), "reason": visible(model.reason, lines=True)}
            return {**model.to_dict(), **words, "id": number}

        def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:
            """Return the state; all of it has the past too, which no update carries."""
            state = super().get_state(key, drop_defaults)
            if key is None:
                state["past"] = {str(number): list(rows) for number, rows in list(self._past.items())}
            return state

    return WatchWidget
