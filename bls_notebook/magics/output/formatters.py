"""Registers how responses and records look when they are the value of a cell.

Only a cell's own value is drawn in full; inside lists and dicts the short `repr` stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bls_notebook import BLSError
from bls_notebook.capabilities import registry
from bls_notebook.magics.notebook import Notebook

from .results import Families, Models, Responses, Statistics, Streams

_LISTS: tuple[type, ...] = (Responses, Streams, Models, Statistics, Families)


def add_formatters(notebook: Notebook) -> Callable[[], None]:
    """Make the shell draw responses and records; what this returns makes it forget them."""

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

    formatter = notebook.shell.display_formatter
    assert formatter is not None  # every shell makes one
    bundles, texts = formatter.mimebundle_formatter, formatter.formatters["text/plain"]
    first = formatter.ipython_display_formatter
    # By name: most classes are imported when they are first used.
    names = [
        target.replace(":", ".")
        for target, (_, drawing) in registry().drawings().items()
        if drawing.document or not drawing.many
    ]
    types: list[type | str] = [*names, *_LISTS]
    for kind in types:
        bundles.for_type(kind, bundle)
    for kind in _LISTS:  # IPython's own way with lists would go before the bundle
        texts.for_type(kind, text)
    first.for_type(Responses, shown_while_they_came)

    def remove() -> None:
        for kind in types:
            bundles.pop(kind, None)
        for kind in _LISTS:
            texts.type_printers.pop(kind, None)
        first.type_printers.pop(Responses, None)

    return remove
