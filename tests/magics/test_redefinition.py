"""Which changes a cell shows: a notebook that defines a model twice looks the same when it is run again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.settings import BLSNotebook
from bls_notebook.magics.tritonmodel import with_changes_to_show
from bls_notebook.records.repository import Change, ModelRecord

CHANGED = (Change("model.py", 1, 1),)


class Kernel:
    """A notebook in a kernel, of which one cell runs; frontends without a person tell no cell ids."""

    def __init__(self, ids: bool) -> None:
        self._ids, self._cell, self._serves = ids, "", ""
        shell: Any = SimpleNamespace(kernel=object(), get_parent=self._parent)
        self._notebook = Notebook(shell, BLSNotebook())

    def _parent(self) -> dict[str, Any]:
        return {"metadata": {"cellId": self._cell} if self._ids else {}}

    def run(self, cell: str, code: str) -> bool:
        """Run a cell that defines a model with this code; whether it shows changes."""
        changes = CHANGED if self._serves not in ("", code) else ()
        self._cell, self._serves = cell, code
        shown = with_changes_to_show(self._notebook, (code, ""), ModelRecord("m", changes=changes))
        return bool(shown.changes)


@pytest.mark.parametrize("ids", [True, False])
def test_a_whole_notebook_twice(ids: bool) -> None:
    kernel = Kernel(ids)
    notebook = [("first", "a"), ("second", "b"), ("third", "c")]
    first = [kernel.run(*cell) for cell in notebook]
    assert first == [False, True, True]
    assert [kernel.run(*cell) for cell in notebook] == first


@pytest.mark.parametrize("ids", [True, False])
def test_a_cell_that_is_edited(ids: bool) -> None:
    kernel = Kernel(ids)
    assert [kernel.run("one", code) for code in "abb"] == [False, True, False]
    assert kernel.run("one", "a") == ids  # without ids nobody knows that it was the same cell


def test_in_a_terminal_it_is_always_told(cells) -> None:
    cells.model("times", 2)
    assert "changed since" not in cells.model("times", 2).text
    assert "model.py +1 −1" in cells.model("times", 3).text
    assert "model.py +1 −1" in cells.model("times", 2).text
