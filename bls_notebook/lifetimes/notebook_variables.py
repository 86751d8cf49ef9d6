"""Connect memory recordings to a notebook: the running cell, and variables that may own memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bls_notebook.devices import allocation_log
from bls_notebook.devices.allocation_log import owner_kinds
from bls_notebook.magics import Notebook, Responses, Streams
from bls_notebook.records import Remedy

from .owner_search import SearchRoot
from .owners import providers

HISTORY = Remedy("get_ipython().run_line_magic('reset', '-f out')", "%reset -f out")  # deletes Out, _, __ and ___
_LAST = ("_", "__", "___")
_HIDDEN = ("In", "Out", "_ih", "_oh", "_dh", "_i", "_ii", "_iii", "exit", "quit", "get_ipython")

owner_kinds[Responses] = owner_kinds[Streams] = "response"


def watch_memory(notebook: Notebook) -> Callable[[], None]:
    """Register a notebook: blocks record its running cell, and its variables may own memory. Return the undo."""
    events: Any = notebook.shell.events

    def cell_begins(info: object = None) -> None:
        allocation_log.set_cell(f"In [{notebook.cell_number}]")

    def roots() -> Iterator[SearchRoot]:
        yield from _roots(notebook.shell.user_ns)

    def remove() -> None:
        events.unregister("pre_run_cell", cell_begins)
        providers.remove(roots)
        allocation_log.set_cell("")

    events.register("pre_run_cell", cell_begins)
    providers.insert(0, roots)  # a variable is the name that the user knows best
    cell_begins()
    return remove


def _roots(variables: dict[str, Any]) -> Iterator[SearchRoot]:
    shown = variables.get("_oh")
    history = dict(shown) if isinstance(shown, dict) else {}
    for name, value in list(variables.items()):
        if name in _HIDDEN or (name.startswith("_i") and name[2:].isdigit()):
            continue
        if name in _LAST:
            yield SearchRoot("variable", name, value, HISTORY)
        elif not (name[:1] == "_" and name[1:].isdigit() and int(name[1:]) in history):
            yield SearchRoot("variable", name, value)
    yield from (SearchRoot("variable", f"Out[{number}]", value, HISTORY) for number, value in history.items())
