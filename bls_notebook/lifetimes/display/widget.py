"""The memory track as a widget: hover, zoom, filter, click. While a kernel is there it covers the figure.

Importing this module imports anywidget (the extra ``widgets``).
"""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from bls_notebook.display.as_html import document_html
from bls_notebook.display.as_text import document_text
from bls_notebook.display.browser.on_top import covered, new_place, with_view
from bls_notebook.display.browser.widget_files import widget_source
from bls_notebook.lifetimes.records import Life, Lifetimes

from .columns import packed
from .report import lifetimes_document


class LifetimesWidget(anywidget.AnyWidget):
    """The interactive chart of a memory track, its ``record``.

    ``selected`` is the ``id`` of the block that was clicked, 0 for none; it can be set, and observed as any
    trait. ``life`` is that block. Shown as HTML and text (of `width` terminal cells) wherever widgets cannot
    be.
    """

    _esm = widget_source("lifetimes.js")
    _css = widget_source("chart.css") + widget_source("lifetimes.css")

    data = traitlets.Bytes().tag(sync=True)
    columns: Any = traitlets.List().tag(sync=True)
    info = traitlets.Dict().tag(sync=True)
    place = traitlets.Unicode().tag(sync=True)
    selected = traitlets.Int(0).tag(sync=True)

    def __init__(self, record: Lifetimes, width: int = 100) -> None:
        self.record = record
        self._width = width
        self._by_id = {life.id: life for life in record.lives}
        found = packed(record)
        super().__init__(data=found.data, columns=found.columns, info=found.info, place=new_place())

    @property
    def life(self) -> Life | None:
        """The block that is selected."""
        return self._by_id.get(self.selected)

    def _repr_mimebundle_(self, **_: Any) -> Any:
        document = lifetimes_document(self.record)
        html = covered(document_html(document), self)
        return with_view({"text/plain": document_text(document, self._width), "text/html": html}, self)
