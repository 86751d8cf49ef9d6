"""``%%blsmemory``: run a cell and show the lifetimes of its tensors."""

from __future__ import annotations

import importlib.util
from typing import Any

import bls_notebook as bls
from bls_notebook import display as displays
from bls_notebook.magics import MagicCall, Notebook, cell_body, reported
from bls_notebook.operations import (
    INTO,
    QUIET,
    SAVE,
    OperationSpec,
    UsageProblem,
    flag,
    identifier,
    option,
    whole_number,
)
from bls_notebook.progress import progress

from .memory_recording import DEFAULT_LIMIT
from .notebook_variables import HISTORY
from .owner_search import SearchRoot
from .owners import providers


def _memory(
    call: MagicCall,
    static: bool = False,
    widget: str = "",
    lines: bool = True,
    limit: int = DEFAULT_LIMIT,
    **shown_as: Any,
) -> object:
    """Run a cell and show the lifetimes of its tensors."""
    __tracebackhide__ = True
    if static and widget:
        raise UsageProblem("--static and --widget exclude each other")
    if widget and importlib.util.find_spec("anywidget") is None:
        raise UsageProblem("--widget needs anywidget: pip install anywidget")
    notebook, cell = call.notebook, call.cell
    body = cell_body(notebook, call.name, cell)
    track = bls.track_memory(name=f"In [{notebook.cell_number}]", lines=lines, limit=limit)
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
            _finish(notebook, track, static, widget, **shown_as)
    finally:
        providers.remove(roots)
    return value


def _finish(
    notebook: Notebook, track: Any, static: bool, widget: str, into: str = "", save: str = "", quiet: bool = False
) -> None:
    notebook.assign(into, track)
    notebook.remember(track)
    record, width = track.record, notebook.settings.width
    if widget:
        from .display.widget import LifetimesWidget

        shown: Any = LifetimesWidget(record, width)
        notebook.assign(widget, shown)
    else:
        shown = displays.render(record, width=width) if static else notebook.draw(record)
    if not quiet:
        notebook.publish(shown)
    notebook.save("%%blsmemory", track, save)


MEMORY = OperationSpec(
    """Run the cell and show the lifetimes of tensors that pass through requests and of blocks of GPU memory, and what
    models keep more that is no tensor. The cell may send requests in any way, await included. The display has bytes
    over time on each device, the blocks alive at the peak and the lines of code that made them, a bar for each
    block, and the blocks that the cell left behind, with their owners and the command that releases them. If the
    cell fails, the recording until then is shown. In scripts: with bls.track_memory(). Guide: docs/guides/leaks.md.""",
    options=(
        INTO,
        SAVE,
        option("--limit", "N", "number of blocks to keep; older dead ones are dropped", whole_number(1)),
        flag(
            "--no-lines",
            "record no lines of code: saves 0.2 to 0.5 µs for each tensor",
            dest="lines",
            action="store_false",
        ),
        flag("--static", "show a picture even if widgets work"),
        option("--widget", "NAME", "a variable for the widget; its life is the selected block", identifier),
        QUIET,
    ),
    examples="""
    %%blsmemory
    answer = %bls leaky IN=images --device gpu:0

    %%blsmemory --into before --save before.json
    for image in images:
        %bls leaky IN=image -q
    """,
    notebook=_memory,
)
