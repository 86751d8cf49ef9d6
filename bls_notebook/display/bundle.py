"""What a magic hands to the notebook: text and HTML together, chosen by the kind of record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from bls_notebook.display.as_html import document_html
from bls_notebook.display.as_text import document_text
from bls_notebook.display.browser.on_top import covered, with_view
from bls_notebook.display.document import Document
from bls_notebook.display.html import Html
from bls_notebook.observe.analysis.call_graph import CallGraph
from bls_notebook.observe.analysis.difference import Difference
from bls_notebook.observe.analysis.session_statistics import SessionStatistics
from bls_notebook.observe.records.comparison import Comparison
from bls_notebook.observe.records.lifetimes import Lifetimes
from bls_notebook.observe.records.metrics import FamilyRecord
from bls_notebook.observe.records.plain import Record
from bls_notebook.observe.records.repository import (
    DeviceTable,
    ErrorRecord,
    MessageRecord,
    ModelRecord,
    ResponseRecord,
)
from bls_notebook.observe.records.session import Session
from bls_notebook.observe.records.statistics import StatisticsRecord

Drawable = (
    Record
    | Sequence[ModelRecord]
    | Sequence[ResponseRecord]
    | Sequence[StatisticsRecord]
    | Sequence[FamilyRecord]
)


# The function that draws each kind of record, by its module: imported when the first one is shown.
_ONE: dict[type[Record], str] = {
    ModelRecord: "records.models.model_document",
    ResponseRecord: "records.responses.response_document",
    ErrorRecord: "records.errors.error_document",
    MessageRecord: "records.messages.message_document",
    Lifetimes: "lifetimes.report.lifetimes_document",
    Session: "session.summary.session_document",
    SessionStatistics: "session.summary.figures_document",
    Difference: "session.difference.difference_document",
    Comparison: "session.comparison.comparison_document",
    DeviceTable: "records.devices.devices_document",
}
_MANY: dict[type[Record], str] = {
    ModelRecord: "records.models.models_document",
    ResponseRecord: "records.many.responses_document",
    StatisticsRecord: "records.statistics.statistics_document",
    FamilyRecord: "records.metrics.metrics_document",
}
_HERE = __name__.rpartition(".")[0]


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
    value: Drawable,
    *,
    stream: bool = False,
    running: bool = False,
    width: int = 100,
    empty: type[Record] = ModelRecord,
    live: bool = False,
) -> Display:
    """Draw a record, or a sequence of them, as text and HTML.

    Parameters
    ----------
    value : record, or sequence of ModelRecord, ResponseRecord, StatisticsRecord or FamilyRecord
        What to show.
    stream : bool
        Whether a sequence of responses is the stream of one request, not one response each of many.
    running : bool
        Whether more responses of that stream may come.
    width : int
        Terminal cells in a line of the text.
    empty : type
        What an empty sequence is a sequence of; of responses if `stream`.
    live : bool
        Whether a widget may cover the picture of a record that has one, where a kernel and anywidget are
        there.

    Returns
    -------
    Display
        Both forms.

    Raises
    ------
    TypeError
        If there is no display for such a value.
    """
    if isinstance(value, CallGraph):
        graph = import_module(f"{_HERE}.session.call_graph")
        return Display(graph.call_graph_text(value, width=width), mermaid=graph.call_graph_mermaid(value))
    if not isinstance(value, Record):
        kind = ResponseRecord if stream else _kind(value, empty)
        given = {"stream": stream, "running": running} if kind is ResponseRecord else {}
        return _shown(_MANY[kind], value, width, **given)
    if type(value) not in _ONE:
        expected = ", ".join(kind.__name__ for kind in _ONE)
        raise TypeError(f"no display for {type(value).__name__}; expected {expected}")
    widget = _widget(value, width) if live else None
    if widget is None:
        return _shown(_ONE[type(value)], value, width)
    if not isinstance(value, Lifetimes):
        return replace(_shown(_ONE[type(value)], value, width, widget=widget), widget=widget)
    shown = _shown(_ONE[Lifetimes], value, width)
    return replace(shown, html=covered(Html(shown.html), widget), widget=widget)


def render_config(name: str, pbtxt: str, *, width: int = 100) -> Display:
    """Draw a model's config as text and HTML.

    Parameters
    ----------
    name : str
        The model's name.
    pbtxt : str
        The config in protobuf's text format.
    width : int
        Terminal cells in a line of the text.

    Returns
    -------
    Display
        Both forms.
    """
    return _shown("records.configs.config_document", name, width, pbtxt=pbtxt)


def _shown(drawn_by: str, value: Any, width: int, **given: Any) -> Display:
    module, _, function = drawn_by.rpartition(".")
    document: Document = getattr(import_module(f"{_HERE}.{module}"), function)(value, **given)
    return Display(document_text(document, width), document_html(document))


def _widget(value: Record, width: int) -> Any:
    """What may cover the picture of a record: there is a kernel, and something to see."""
    if isinstance(value, Lifetimes) and value.lives:
        return import_module(f"{_HERE}.lifetimes.widget").live_lifetimes(value, width=width)
    if isinstance(value, Comparison) and value.gathered.spans:
        return import_module(f"{_HERE}.timeline.live").live_timeline(value.sequential, value.gathered)
    if isinstance(value, Session) and value.spans:
        return import_module(f"{_HERE}.timeline.live").live_timeline(value, titled=False)
    return None


def _kind(values: Sequence[Any], empty: type[Record]) -> type[Record]:
    kinds = {type(value) for value in values} or {empty}
    if len(kinds) == 1 and kinds <= _MANY.keys():
        return kinds.pop()
    found = ", ".join(sorted(each.__name__ for each in kinds))
    expected = ", or ".join(f"all {each.__name__}" for each in _MANY)
    raise TypeError(f"no display for a sequence of {found}; expected {expected}")
