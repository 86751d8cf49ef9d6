"""What a magic hands to the notebook: text and HTML together, chosen by the kind of record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bls_notebook.display.configs import config_html, config_text
from bls_notebook.display.devices import devices_html, devices_text
from bls_notebook.display.errors import error_html, error_text
from bls_notebook.display.lifetimes import lifetimes_html, lifetimes_text
from bls_notebook.display.lifetimes.widget import live_lifetimes
from bls_notebook.display.many import many_html, many_text, stream_html, stream_text
from bls_notebook.display.messages import message_html, message_text
from bls_notebook.display.metrics import metrics_html, metrics_text
from bls_notebook.display.model_list import models_html, models_text
from bls_notebook.display.models import model_html, model_text
from bls_notebook.display.on_top import covered, with_view
from bls_notebook.display.responses import response_html, response_text
from bls_notebook.display.session import summary
from bls_notebook.display.session.call_graph import call_graph_mermaid, call_graph_text
from bls_notebook.display.session.comparison import comparison_html, comparison_text
from bls_notebook.display.session.difference import difference_html, difference_text
from bls_notebook.display.statistics import statistics_html, statistics_text
from bls_notebook.display.svg import can_plot
from bls_notebook.display.timeline.live import live_timeline
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


def _difference_html(difference: Difference) -> str:
    if not can_plot() or not difference.models:
        return difference_html(difference)
    from bls_notebook.display.session.difference_figure import difference_picture

    return difference_html(difference, picture=difference_picture(difference))


_ONE: dict[type[Record], tuple[Callable[..., str], Callable[..., str]]] = {
    ModelRecord: (model_text, model_html),
    ResponseRecord: (response_text, response_html),
    ErrorRecord: (error_text, error_html),
    MessageRecord: (message_text, message_html),
    Lifetimes: (lifetimes_text, lifetimes_html),
    Session: (summary.session_text, summary.session_html),
    SessionStatistics: (summary.statistics_text, summary.statistics_html),
    Difference: (difference_text, _difference_html),
    Comparison: (comparison_text, comparison_html),
    DeviceTable: (devices_text, devices_html),
}
_MANY: dict[type[Record], tuple[Callable[..., str], Callable[..., str]]] = {
    ModelRecord: (models_text, models_html),
    ResponseRecord: (many_text, many_html),
    StatisticsRecord: (statistics_text, statistics_html),
    FamilyRecord: (metrics_text, metrics_html),
}


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
    if isinstance(value, Lifetimes) and live and value.lives:
        widget = live_lifetimes(value, width=width)
        html = lifetimes_html(value)
        over = html if widget is None else covered(html, widget)
        return Display(lifetimes_text(value, width=width), over, widget=widget)
    if isinstance(value, CallGraph):
        return Display(call_graph_text(value, width=width), mermaid=call_graph_mermaid(value))
    if isinstance(value, Comparison) and live and value.gathered.spans:
        widget = live_timeline(value.sequential, value.gathered)
        drawn = comparison_html(value, widget=widget)
        return Display(comparison_text(value, width=width), drawn, widget=widget)
    if isinstance(value, Session) and live and value.spans:
        widget = live_timeline(value, titled=False)
        figures = summary.session_html(value, widget=widget)
        return Display(summary.session_text(value, width=width), figures, widget=widget)
    if isinstance(value, Record):
        pair = _ONE.get(type(value))
        if pair is None:
            expected = ", ".join(kind.__name__ for kind in _ONE)
            raise TypeError(f"no display for {type(value).__name__}; expected {expected}")
    elif stream:
        records: Sequence[Any] = value
        drawn = stream_html(records, running=running)
        return Display(stream_text(records, width=width, running=running), drawn)
    else:
        pair = _sequence(value, empty)
    return Display(pair[0](value, width=width), pair[1](value))


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
    return Display(config_text(name, pbtxt, width=width), config_html(name, pbtxt))


def _sequence(values: Sequence[Any], kind: type[Record]) -> tuple[Callable[..., str], Callable[..., str]]:
    kinds = {type(value) for value in values} or {kind}
    if len(kinds) == 1 and kinds <= _MANY.keys():
        return _MANY[kinds.pop()]
    found = ", ".join(sorted(each.__name__ for each in kinds))
    expected = ", or ".join(f"all {each.__name__}" for each in _MANY)
    raise TypeError(f"no display for a sequence of {found}; expected {expected}")
