"""``%%blsmemory``: run a cell and show the lifetimes of its tensors."""

from __future__ import annotations

import argparse
import importlib.util
from typing import Any

import bls_notebook as bls
from bls_notebook import display as displays
from bls_notebook.magics import (
    Magic,
    Notebook,
    Parser,
    Variables,
    add_options,
    cell_body,
    help_text,
    identifier,
    new_file,
    reported,
)
from bls_notebook.progress import progress

from .notebook_variables import HISTORY
from .owners import SearchRoot, providers

PARSER = Parser("%%blsmemory", *help_text(__file__, "%%blsmemory"))
add_options(PARSER, __file__, "%%blsmemory", identifier=identifier, new_file=new_file)


def bls_memory(notebook: Notebook, line: str, cell: str, variables: Variables) -> object:
    """Run a cell and show the lifetimes of its tensors."""
    __tracebackhide__ = True
    arguments = PARSER.parse_line(line, variables)
    if arguments.static and arguments.widget:
        PARSER.error("--static and --widget exclude each other")
    if arguments.widget and importlib.util.find_spec("anywidget") is None:
        PARSER.error("--widget needs anywidget: pip install anywidget")
    body = cell_body(notebook, "%%blsmemory", cell)
    limit = {} if arguments.limit is None else {"limit": arguments.limit}
    name = f"In [{notebook.cell_number}]"
    track = bls.track_memory(name=name, lines=not arguments.no_lines, **limit)
    shown: list[Any] = []  # the cell's value, which is not yet in Out

    def roots() -> list[SearchRoot]:
        return [SearchRoot("variable", f"Out[{notebook.cell_number}]", value, HISTORY) for value in shown]

    providers.insert(0, roots)
    try:
        with reported(notebook):
            track.__enter__()
        try:
            value = body()
            if cell.rstrip().endswith(";"):
                value = None
            shown.append(value)
        finally:
            with progress("searching the owners of blocks that the cell left behind"):
                track.__exit__(None, None, None)
            _finish(notebook, track, arguments)
    finally:
        providers.remove(roots)
    return value


def _finish(notebook: Notebook, track: Any, arguments: argparse.Namespace) -> None:
    notebook.assign(arguments.into, track)
    notebook.remember(track)
    record, width = track.record, notebook.settings.width
    if arguments.widget:
        from .display.widget import LifetimesWidget

        widget = LifetimesWidget(record, width)
        notebook.assign(arguments.widget, widget)
        shown: Any = widget
    else:
        shown = displays.render(record, width=width) if arguments.static else notebook.draw(record)
    if not arguments.quiet:
        notebook.publish(shown)
    notebook.save("%%blsmemory", track, arguments.save, readable=True)


MAGIC = Magic(PARSER, bls_memory)
