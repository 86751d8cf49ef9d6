"""What a magic hands to the notebook: text and HTML together, drawn by what is registered for its class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bls_notebook.capabilities import load, registry
from bls_notebook.display.as_html import document_html
from bls_notebook.display.as_text import document_text
from bls_notebook.display.document import Document
from bls_notebook.records.base import Record

from .widgets import live as live_widget
from .widgets import with_view


@dataclass(frozen=True, slots=True)
class Display:
    """One display in several forms; Jupyter picks the richest that it can show."""

    text: str
    html: str = ""
    widget: Any = None  # what covers a picture of the HTML while a kernel is there
    mermaid: str = ""  # JupyterLab draws it (from 4.1 on), but shows HTML rather where there is any

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        forms = {"text/plain": self.text, "text/html": self.html, "text/vnd.mermaid": self.mermaid}
        shown = {kind: form for kind, form in forms.items() if form or kind == "text/plain"}
        return with_view(shown, self.widget)

    def __str__(self) -> str:
        return self.text


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
    """Draw a registered value, or a sequence of records, as text (of `width` terminal cells) and HTML.

    Of responses, `stream` says whether they are of one request, not one of each of many; `running` whether
    more of them may come, and `texts` what the pieces of its outputs say together. An empty sequence is one
    of `empty` (the name of a record), by default of responses if `stream`, else of models. `live` allows a
    widget to cover the picture of a record that has one, where a kernel and anywidget are there.

    Raises
    ------
    TypeError
        If there is no display for such a value.
    """
    if not isinstance(value, Record) and isinstance(value, Sequence):
        cls = _class_of(value, stream, empty)
        given: dict[str, Any] = {}
        if cls.endswith(":ResponseRecord"):
            given = {"stream": stream, "running": running, "texts": texts}
        capability, drawing = registry().drawings()[cls]
        return _shown(capability.absolute(drawing.many), value, width, **given)
    found = registry().drawing(type(value))
    if found is None or not (found[1].document or found[1].display):
        raise TypeError(f"no display for {type(value).__name__}; expected what a capability draws")
    capability, drawing = found
    if drawing.display:
        display: Display = load(capability.absolute(drawing.display))(value, width=width, live=live)
        return display
    document, widget = capability.absolute(drawing.document), None
    if live and drawing.widget:
        widget = live_widget(lambda: load(capability.absolute(drawing.widget))(value, width))
    if widget is None:
        return _shown(document, value, width)
    return replace(_shown(document, value, width, widget=widget), widget=widget)


def render_config(name: str, pbtxt: str, *, width: int = 100) -> Display:
    """Draw a model's config, in protobuf's text format, as text (of `width` terminal cells) and HTML."""
    from .records.models import config_document  # first needed here

    return display_of(config_document(name, pbtxt=pbtxt), width)


def display_of(document: Document, width: int = 100) -> Display:
    """Draw a document in both forms."""
    return Display(document_text(document, width), document_html(document))


def _shown(target: str, value: Any, width: int, **given: Any) -> Display:
    return display_of(load(target)(value, **given), width)


def _class_of(values: Sequence[Record], stream: bool, empty: str) -> str:
    """Return the target of the class that records in a list have; of an empty list, of the class `empty`."""
    many = [cls for cls, (_, drawing) in registry().drawings().items() if drawing.many]
    names = {type(value).__name__ for value in values}
    name = "ResponseRecord" if stream else names.pop() if len(names) == 1 else "" if names else empty
    cls = next((cls for cls in many if cls.endswith(f":{name or 'ModelRecord'}")), "")
    if cls and (name or not values):
        return cls
    expected = ", or ".join(f"all {cls.partition(':')[2]}" for cls in many)
    found = ", ".join(sorted({type(value).__name__ for value in values}))
    raise TypeError(f"no display for a sequence of {found}; expected {expected}")
