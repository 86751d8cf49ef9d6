"""What a magic hands to the notebook: text and HTML together, chosen by the kind of record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from bls_notebook.display.as_html import document_html
from bls_notebook.display.as_text import document_text
from bls_notebook.display.browser.alive import live
from bls_notebook.display.browser.on_top import covered, with_view
from bls_notebook.display.document import Document
from bls_notebook.display.html import Html
from bls_notebook.records.plain import Record

# The function that draws each kind of record, by its module: imported when the first one is shown.
_ONE = {
    "ModelRecord": "display.records.models.model_document",
    "ResponseRecord": "display.records.responses.response_document",
    "ErrorRecord": "display.records.errors.error_document",
    "MessageRecord": "display.records.messages.message_document",
    "ConnectionRecord": "network.connection.display.connection_document",
    "Certificate": "shipping.proof.display.certificate_document",
    "EndpointRecord": "network.gateway.display.endpoint_document",
    "Drilled": "testing.display.drilled.drilled_document",
    "Exported": "shipping.exports.display.exported_document",
    "Findings": "checking.display.findings_document",
    "Judgement": "testing.display.judgement.judgement_document",
    "Lifetimes": "lifetimes.display.report.lifetimes_document",
    "Recorded": "testing.display.recording.recording_document",
    "Replay": "testing.display.replay.replay_document",
    "ServerRecord": "shipping.servers.display.served_document",
    "Session": "profiling.display.session_report.session_document",
    "SessionStatistics": "profiling.display.session_report.figures_document",
    "Difference": "profiling.display.difference_report.difference_document",
    "Comparison": "profiling.display.comparison_report.comparison_document",
    "Overlap": "profiling.display.overlap.overlap_document",
    "Tried": "trying.display.tried_document",
    "Tuning": "profiling.display.tuning_report.tuning_document",
    "SideBySide": "profiling.display.difference_report.beside_document",
    "DeviceTable": "display.records.devices.devices_document",
    "TensorView": "inspection.display.tensors.tensor_view_document",
    "ResponseView": "inspection.display.tensors.response_view_document",
    "ModelView": "inspection.display.models.model_view_document",
    "Compared": "display.records.differences.compared_document",
}
_MANY = {
    "ModelRecord": "display.records.models.models_document",
    "ResponseRecord": "display.records.many.responses_document",
    "StreamRecord": "display.records.streams.streams_document",
    "StatisticsRecord": "display.records.statistics.statistics_document",
    "FamilyRecord": "display.records.metrics.metrics_document",
}
_HERE = "bls_notebook"


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
    value: Record | Sequence[Record],
    *,
    stream: bool = False,
    running: bool = False,
    width: int = 100,
    empty: str = "",
    live: bool = False,
    texts: Sequence[tuple[str, str]] = (),
) -> Display:
    """Draw a record, or a sequence of them, as text (of `width` terminal cells) and HTML.

    Of responses, `stream` says whether they are of one request, not one of each of many; `running` whether
    more of them may come, and `texts` what the pieces of its outputs say together. An empty sequence is one
    of `empty` (the name of a record), by default of responses if `stream`, else of models. `live` allows a
    widget to cover the picture of a record that has one, where a kernel and anywidget are there.

    Raises
    ------
    TypeError
        If there is no display for such a value.
    """
    if not isinstance(value, Record):
        kind = "ResponseRecord" if stream else _kind(value, empty)
        given = {"stream": stream, "running": running, "texts": texts} if kind == "ResponseRecord" else {}
        return _shown(_MANY[kind], value, width, **given)
    kind = type(value).__name__
    if kind == "CallGraph":
        graph = import_module(f"{_HERE}.profiling.display.call_graph_diagram")
        return Display(graph.call_graph_text(value, width=width), mermaid=graph.call_graph_mermaid(value))
    if kind not in _ONE:
        raise TypeError(f"no display for {kind}; expected {', '.join(_ONE)}")
    widget = _widget(kind, value, width) if live else None
    if widget is None:
        return _shown(_ONE[kind], value, width)
    if kind != "Lifetimes":
        return replace(_shown(_ONE[kind], value, width, widget=widget), widget=widget)
    shown = _shown(_ONE[kind], value, width)
    return replace(shown, html=covered(Html(shown.html), widget), widget=widget)


def render_config(name: str, pbtxt: str, *, width: int = 100) -> Display:
    """Draw a model's config, in protobuf's text format, as text (of `width` terminal cells) and HTML."""
    return _shown("display.records.configs.config_document", name, width, pbtxt=pbtxt)


def _shown(drawn_by: str, value: Any, width: int, **given: Any) -> Display:
    module, _, function = drawn_by.rpartition(".")
    document: Document = getattr(import_module(f"{_HERE}.{module}"), function)(value, **given)
    return Display(document_text(document, width), document_html(document))


def _widget(kind: str, value: Any, width: int) -> Any:
    """What may cover the picture of a record: there is a kernel, and something to see."""
    if kind == "Lifetimes" and value.lives:
        return live(lambda: import_module(f"{_HERE}.lifetimes.display.widget").LifetimesWidget(value, width))
    if kind == "Comparison" and value.gathered.spans:
        runs = (value.sequential, value.gathered)
        return live(lambda: import_module(f"{_HERE}.profiling.timeline.widget").Timeline(*runs))
    if kind == "Overlap" and value.written.spans:
        both = (value.written, value.ahead) if value.rounds else (value.written,)
        return live(lambda: import_module(f"{_HERE}.profiling.timeline.widget").Timeline(*both))
    if kind == "Tuning" and value.then is not None:
        return live(
            lambda: import_module(f"{_HERE}.profiling.timeline.widget").Timeline(value.gathered, value.then)
        )
    if kind == "SideBySide" and (value.before.spans or value.after.spans):
        both = (value.before, value.after)
        return live(lambda: import_module(f"{_HERE}.profiling.timeline.widget").Timeline(*both))
    if kind == "Session" and value.spans:
        return live(lambda: import_module(f"{_HERE}.profiling.timeline.widget").Timeline(value, titled=False))
    return None


def _kind(values: Sequence[Record], empty: str) -> str:
    kinds = {type(value).__name__ for value in values} or {empty or "ModelRecord"}
    if len(kinds) == 1 and kinds <= _MANY.keys():
        return kinds.pop()
    expected = ", or ".join(f"all {each}" for each in _MANY)
    raise TypeError(f"no display for a sequence of {', '.join(sorted(kinds))}; expected {expected}")
