"""The timeline as a widget: draw, zoom, hover, search and select in the browser, and know in Python what was.

Importing this module imports anywidget (the extra ``widgets``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import anywidget
import traitlets

from bls_notebook.display.as_html import output
from bls_notebook.display.browser.on_top import new_place, with_view
from bls_notebook.display.browser.widget_files import widget_source
from bls_notebook.display.palette import model_inks
from bls_notebook.profiling.analysis.critical_path import Step
from bls_notebook.profiling.records.session import Session, Span

from .block import timeline_block
from .columns import path_columns, session_columns
from .text import timeline_text

_AT_ONCE = 3_000  # requests up to which the critical path is worked out before anyone asks


class Timeline(anywidget.AnyWidget):
    """One session, or two on one axis.

    `session`: what was recorded, or what has it as its ``record``, as `profile` gives it.
    `other`: drawn below it on the same axis, such as the gathered run below the sequential one.
    `critical`: the critical paths, if they are known already; else they are worked out when they are asked
        for.
    `lit`: whether the critical path is lit from the start.
    `titled`: whether a session alone has its name and figures above it; two always have.
    `selection`: what is selected in the browser: ``begin`` and ``end`` in ns, and for each of the
        ``sessions`` how many ``requests`` were under way then and how many of these ``failed``, how long they
        were ``queued`` in all and how much ``work`` was done on them (ns), and the same for each of the
        ``models``, with how long it was ``busy`` instead of ``work``; empty if nothing is selected.
    `focus`: the request that was clicked or reached by keys: the number of its ``session`` and its span's
        ``id``; empty if none was.
    """

    _esm = widget_source("timeline.js")
    _css = widget_source("chart.css") + widget_source("timeline.css")

    place = traitlets.Unicode().tag(sync=True)
    sessions: traitlets.List[dict[str, Any]] = traitlets.List().tag(sync=True)
    paths: traitlets.List[dict[str, Any]] = traitlets.List().tag(sync=True)
    wants_paths = traitlets.Bool(False).tag(sync=True)
    lit = traitlets.Bool(False).tag(sync=True)
    titled = traitlets.Bool(True).tag(sync=True)
    selection = traitlets.Dict().tag(sync=True)
    focus = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        session: Any,
        other: Any = None,
        *,
        critical: Sequence[Iterable[Step]] | None = None,
        lit: bool = False,
        titled: bool = True,
    ) -> None:
        records = [session.record] if other is None else [session.record, other.record]
        inks = model_inks({"", *(span.model for record in records for span in record.spans)})
        self._records: tuple[Session, ...] = tuple(records)
        self._critical = critical
        drawn: list[dict[str, Any]] = []
        for record in records:
            top = drawn[-1]["bottom"] if drawn else 0.0
            drawn.append(session_columns(record, inks, top, titled=len(records) > 1))
        super().__init__(place=new_place(), sessions=drawn, lit=lit, titled=titled)
        if lit or critical is not None or sum(len(record.spans) for record in records) <= _AT_ONCE:
            self._find_paths()

    @traitlets.observe("wants_paths")
    def _find_paths(self, change: Any = None) -> None:
        if self.paths:
            return
        critical = self._critical or [record.critical_path() for record in self._records]
        self.paths = [path_columns(*pair) for pair in zip(self._records, critical, strict=True)]

    @property
    def records(self) -> tuple[Session, ...]:
        """The sessions that it draws, from top to bottom."""
        return self._records

    @property
    def span(self) -> Span | None:
        """The request that was clicked or reached by keys; None if none was."""
        if not self.focus:
            return None
        spans = self._records[self.focus["session"]].spans
        return next((span for span in spans if span.id == self.focus["id"]), None)

    @property
    def selected(self) -> tuple[tuple[Span, ...], ...]:
        """The spans of each session that touch the selected range; all of them if nothing is selected."""
        if not self.selection:
            return tuple(record.spans for record in self._records)
        begin, end = self.selection["begin"], self.selection["end"]
        return tuple(
            tuple(span for span in record.spans if span.sent <= end and span.ended >= begin)
            for record in self._records
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **kwargs: Any) -> Any:
        text = timeline_text(*self._records)
        html = output(timeline_block(self._records, widget=self).html, styles="figure")
        return with_view({"text/plain": text, "text/html": html}, self)
