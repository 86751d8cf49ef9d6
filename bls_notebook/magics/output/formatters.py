"""Registers how responses and records look when they are the value of a cell.

Only a cell's own value is drawn in full; inside lists and dicts the short `repr` stays.
"""

from __future__ import annotations

from typing import Any

from IPython.core.formatters import DisplayFormatter

from bls_notebook import BLSError
from bls_notebook.magics.notebook import Notebook

from .results import Families, Models, Responses, Statistics

__all__ = ["add_formatters", "remove_formatters"]

_LISTS: tuple[type, ...] = (Responses, Models, Statistics, Families)
# By name: most of them are imported when they are first used.
_NAMES = (
    "engine.recording.memory_track.MemoryTrack",
    "engine.recording.profile.Profile",
    "observe.records.comparison.Comparison",
    "observe.records.lifetimes.Lifetimes",
    "observe.records.repository.DeviceTable",
    "observe.records.repository.ErrorRecord",
    "observe.records.repository.MessageRecord",
    "observe.records.repository.ModelRecord",
    "observe.records.repository.ResponseRecord",
    "observe.records.session.Session",
    "repository.requests.response.Response",
)
_TYPES: tuple[type | str, ...] = (*(f"bls_notebook.{name}" for name in _NAMES), *_LISTS)


def _formatter(notebook: Notebook) -> DisplayFormatter:
    formatter = notebook.shell.display_formatter
    assert formatter is not None  # every shell makes one
    return formatter


def add_formatters(notebook: Notebook) -> None:
    """Make the shell draw responses and records."""

    def bundle(value: Any, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        try:
            return notebook.draw(value)._repr_mimebundle_()
        except BLSError:  # a track that has not begun
            raise NotImplementedError from None

    def text(value: Any, printer: Any, cycle: bool) -> None:
        inside = len(printer.stack) > 1
        printer.text(repr(value) if inside else notebook.draw(value).text)

    def shown_while_they_came(responses: Responses) -> None:
        if responses.shown_in != notebook.cell_number:
            raise NotImplementedError  # the formatters' word for "go on as usual"

    formatter = _formatter(notebook)
    for kind in _TYPES:
        formatter.mimebundle_formatter.for_type(kind, bundle)
    for kind in _LISTS:  # IPython's own way with lists would go before the bundle
        formatter.formatters["text/plain"].for_type(kind, text)
    formatter.ipython_display_formatter.for_type(Responses, shown_while_they_came)


def remove_formatters(notebook: Notebook) -> None:
    """Make the shell forget them."""
    formatter = _formatter(notebook)
    for kind in _TYPES:
        formatter.mimebundle_formatter.pop(kind, None)
    for kind in _LISTS:
        formatter.formatters["text/plain"].type_printers.pop(kind, None)
    formatter.ipython_display_formatter.type_printers.pop(Responses, None)
