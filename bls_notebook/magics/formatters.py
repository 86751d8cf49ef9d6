"""Registers how responses and records look when they are the value of a cell.

Only a cell's own value is drawn in full; inside lists and dicts the short `repr` stays.
"""

from __future__ import annotations

from typing import Any

from bls_notebook import Response
from bls_notebook.observe.records import ErrorRecord, MessageRecord, ModelRecord, ResponseRecord

from .notebook import Notebook
from .results import Models, Responses

__all__ = ["add_formatters", "remove_formatters"]

_TYPES: tuple[type, ...] = (
    Response, Responses, Models, ModelRecord, ResponseRecord, ErrorRecord, MessageRecord,
)  # fmt: skip


def add_formatters(notebook: Notebook) -> None:
    """Make the shell draw responses and records."""

    def bundle(value: Any, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return notebook.draw(value)._repr_mimebundle_()

    def shown_while_they_came(responses: Responses) -> None:
        if responses.shown_in != notebook.shell.execution_count:
            raise NotImplementedError  # the formatters' word for "go on as usual"

    formatter = notebook.shell.display_formatter
    for kind in _TYPES:
        formatter.mimebundle_formatter.for_type(kind, bundle)
    formatter.ipython_display_formatter.for_type(Responses, shown_while_they_came)


def remove_formatters(notebook: Notebook) -> None:
    """Make the shell forget them."""
    formatter = notebook.shell.display_formatter
    for kind in _TYPES:
        formatter.mimebundle_formatter.type_printers.pop(kind, None)
    formatter.ipython_display_formatter.type_printers.pop(Responses, None)
