"""Displays of values: text and HTML in one MIME bundle, made by the functions that are registered for their class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bls_notebook.capabilities import Drawing, registry
from bls_notebook.display.as_html import document_html
from bls_notebook.display.as_text import document_text
from bls_notebook.display.document import Document
from bls_notebook.lazy_names import load
from bls_notebook.records.base import Record
from bls_notebook.records.errors import BLSError

from .html import Html
from .widgets import covered, with_view
from .widgets import live as live_widget


@dataclass(frozen=True, slots=True)
class Display:
    """One display in several forms; Jupyter shows the richest that it supports."""

    text: str
    html: str = ""
    widget: Any = None  # covers a picture of the HTML while a kernel runs
    mermaid: str = ""  # JupyterLab draws it from 4.1 on, but only if there is no HTML

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        forms = {"text/plain": self.text, "text/html": self.html, "text/vnd.mermaid": self.mermaid}
        return with_view({kind: form for kind, form in forms.items() if form or kind == "text/plain"}, self.widget)

    def __str__(self) -> str:
        return self.text


def with_widget(display: Display, make: Callable[[], Any]) -> Display:
    """Cover a display with the widget from `make`, if widgets work here."""
    widget = live_widget(make)
    return display if widget is None else replace(display, html=covered(Html(display.html), widget), widget=widget)


def render(
    value: Any,
    *,
    stream: bool = False,
    running: bool = False,
    width: int = 100,
    empty: str = "",
    live: bool = False,
    texts: Sequence[tuple[str, str]] = (),
) -> Display:
    """Draw a registered value, or a sequence of records, as text (of `width` terminal cells) and HTML; else TypeError.

    Responses may be of one streaming request (`stream`), of which more may arrive (`running`); `texts` are the names
    and joined texts of its outputs whose responses are pieces of text. `empty` is the class name of the records of an
    empty sequence, by default ResponseRecord if `stream`, else ModelRecord. If `live`, a widget may cover the picture
    of the record; it needs a kernel and anywidget.
    """
    if not isinstance(value, Record) and isinstance(value, Sequence):
        cls = _class_of(value, stream, empty)
        options: dict[str, Any] = {}
        if cls.endswith(":ResponseRecord"):
            options = {"stream": stream, "running": running, "texts": texts}
        capability, drawing = registry().drawings()[cls]
        return _render_document(capability.absolute(drawing.many), value, width, **options)
    entry = registry().drawing(type(value))
    if entry is None or not (entry[1].document or entry[1].display):
        raise TypeError(f"no display for {type(value).__name__}; expected a class with a registered display")
    capability, drawing = entry
    if drawing.display:
        display: Display = load(capability.absolute(drawing.display))(value, width=width, live=live)
        return display
    document, widget = capability.absolute(drawing.document), None
    if live and drawing.widget:
        widget = live_widget(lambda: load(capability.absolute(drawing.widget))(value, width))
    if widget is None:
        return _render_document(document, value, width)
    return replace(_render_document(document, value, width, widget=widget), widget=widget)


def render_config(name: str, pbtxt: str, *, width: int = 100) -> Display:
    """Draw a model's config, in protobuf's text format, as text (of `width` terminal cells) and HTML."""
    from bls_notebook.display.records.models import config_document  # imported on first use

    return display_of(config_document(name, pbtxt=pbtxt), width)


def text_of(value: Any) -> str | None:
    """Return the text that a cell shows for a value; None if no display is registered or there is no data yet."""
    entry = registry().drawing(type(value))
    if isinstance(value, list):
        return render(value).text
    if entry is None or (entry[1].many and not entry[1].document):
        return None
    try:
        return render(value.record if entry[1] == Drawing() else value).text
    except BLSError:  # such as a memory recording that has not started
        return None


def display_of(document: Document, width: int = 100) -> Display:
    """Draw a document as text and HTML."""
    return Display(document_text(document, width), document_html(document))


def _render_document(target: str, value: Any, width: int, **options: Any) -> Display:
    return display_of(load(target)(value, **options), width)


def _class_of(values: Sequence[Record], stream: bool, empty: str) -> str:
    """Return the registered class of the records in a list; for an empty list, the class named `empty`."""
    names = {type(value).__name__ for value in values} or {"ResponseRecord" if stream else empty or "ModelRecord"}
    many = {cls.rpartition(":")[2]: cls for cls, (_, drawing) in registry().drawings().items() if drawing.many}
    if len(names) == 1 and (cls := many.get(min(names))):
        return cls
    got, expected = ", ".join(sorted(names)), ", or ".join(f"all {name}" for name in many)
    raise TypeError(f"no display for a sequence of {got}; expected {expected}")
