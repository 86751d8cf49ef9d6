"""What the memory ledger knows of a notebook: which cell runs, what variables there are, what to type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bls_notebook.devices.tracking import ledger
from bls_notebook.devices.tracking.holders import SearchRoot, kinds, providers
from bls_notebook.engine.recording.model_roots import DEFAULT_REMEDY, say_how_to_reload

from .notebook import Notebook
from .output.results import Responses

__all__ = ["MemoryWatch"]

_HISTORY = "%reset -f out"  # takes Out, _, __ and ___ away
_LAST = ("_", "__", "___")
_HIDDEN = ("In", "Out", "_ih", "_oh", "_dh", "_i", "_ii", "_iii", "exit", "quit", "get_ipython")

kinds[Responses] = "response"


class MemoryWatch:
    """Tells the ledger of a shell, until it is removed."""

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook
        self._events: Any = notebook.shell.events
        self._events.register("pre_run_cell", self._cell_begins)
        providers.insert(0, self._roots)  # a variable is the nearest name that there is
        say_how_to_reload("%tritonrepo reload {name}")
        self._cell_begins()

    def remove(self) -> None:
        """Take all of it back."""
        self._events.unregister("pre_run_cell", self._cell_begins)
        providers.remove(self._roots)
        say_how_to_reload(DEFAULT_REMEDY)
        ledger.set_cell("")

    def _cell_begins(self, info: object = None) -> None:
        ledger.set_cell(f"In [{self._notebook.cell_number}]")

    def _roots(self) -> Iterator[SearchRoot]:
        variables: dict[str, Any] = self._notebook.shell.user_ns
        shown = variables.get("_oh")
        history = dict(shown) if isinstance(shown, dict) else {}
        for name, value in list(variables.items()):
            if name in _HIDDEN or (name.startswith("_i") and name[2:].isdigit()):
                continue
            if name in _LAST:
                yield SearchRoot("variable", name, value, _HISTORY)
            elif not (name[:1] == "_" and name[1:].isdigit() and int(name[1:]) in history):
                yield SearchRoot("variable", name, value)
        for number, value in history.items():
            yield SearchRoot("variable", f"Out[{number}]", value, _HISTORY)
