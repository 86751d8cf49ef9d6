"""Registers how responses and records look when they are the value of a cell.

Only a cell's own value is drawn in full; inside lists and dicts the short `repr` stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bls_notebook import BLSError
from bls_notebook.magics.notebook import Notebook

from .results import Families, Models, Responses, Statistics, Streams

_LISTS: tuple[type, ...] = (Responses, Streams, Models, Statistics, Families)
# By name: most of them are imported when they are first used.
_NAMES = (
    "lifetimes.memory_recording.MemoryTrack",
    "profiling.recording.profiler.Profile",
    "profiling.analysis.call_graph.CallGraph",
    "profiling.analysis.difference.Difference",
    "testing.judging.Judgement",
    "profiling.analysis.session_statistics.SessionStatistics",
    "profiling.records.comparison.Comparison",
    "lifetimes.records.Lifetimes",
    "records.devices.DeviceTable",
    "checking.records.Findings",
    "profiling.records.overlap.Overlap",
    "profiling.records.tuning.Tuning",
    "profiling.records.session.SideBySide",
    "records.errors.ErrorRecord",
    "shipping.proof.certificate.Certificate",
    "network.gateway.records.EndpointRecord",
    "shipping.exports.records.Exported",
    "shipping.servers.records.ServerRecord",
    "records.repository.MessageRecord",
    "records.repository.ModelRecord",
    "records.repository.ResponseRecord",
    "profiling.records.session.Session",
    "testing.records.drilled.Drilled",
    "testing.records.replayed.Replay",
    "trying.records.Tried",
    "pb_utils.response.InferenceResponse",
    "pb_utils.tensor.Tensor",
    "network.connection.connection.Connection",
    "inspection.inspection.Inspection",
    "repository.repository.ModelRepository",
    "repository.requests.response.Response",
    "trying.trial.Trial",
    "testing.recording.recorder.Recorder",
    "testing.recording.recording.Recording",
    "network.gateway.server.Endpoint",
    "shipping.servers.serving.LocalServer",
)
_WATCH = "bls_notebook.inspection.watching.Watch"
_TYPES: tuple[type | str, ...] = (*(f"bls_notebook.{name}" for name in _NAMES), *_LISTS)


def add_formatters(notebook: Notebook) -> Callable[[], None]:
    """Make the shell draw responses and records; what this returns makes it forget them."""

    def bundle(value: Any, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        try:
            return notebook.draw(value)._repr_mimebundle_()
        except BLSError:  # a track that has not begun
            raise NotImplementedError from None

    def watch_bundle(watch: Any, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        from bls_notebook.inspection.display.watch_widget import render_watch

        settings = notebook.settings
        return render_watch(watch, width=settings.width, widgets=settings.widgets)._repr_mimebundle_()

    def text(value: Any, printer: Any, cycle: bool) -> None:
        inside = len(printer.stack) > 1
        printer.text(repr(value) if inside else notebook.draw(value).text)

    def shown_while_they_came(responses: Responses) -> None:
        if responses.shown_in != notebook.cell_number:
            raise NotImplementedError  # the formatters' word for "go on as usual"

    formatter = notebook.shell.display_formatter
    assert formatter is not None  # every shell makes one
    bundles, texts = formatter.mimebundle_formatter, formatter.formatters["text/plain"]
    first = formatter.ipython_display_formatter
    for kind in _TYPES:
        bundles.for_type(kind, bundle)
    bundles.for_type(_WATCH, watch_bundle)
    for kind in _LISTS:  # IPython's own way with lists would go before the bundle
        texts.for_type(kind, text)
    first.for_type(Responses, shown_while_they_came)

    def remove() -> None:
        for kind in (*_TYPES, _WATCH):
            bundles.pop(kind, None)
        for kind in _LISTS:
            texts.type_printers.pop(kind, None)
        first.type_printers.pop(Responses, None)

    return remove
