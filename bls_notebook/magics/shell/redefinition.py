"""Which changes the cell of a model shows: those to the definition before.

A notebook that defines a model twice looks the same whenever all of it is run again: a cell that had nothing
to compare with shows nothing as long as it stays as it was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bls_notebook.magics.notebook import Notebook

if TYPE_CHECKING:
    from bls_notebook.records.repository import ModelRecord


def with_changes_to_show(notebook: Notebook, content: tuple[str, str], record: ModelRecord) -> ModelRecord:
    """Return a record with the changes to show; ``content`` is what the cell says of the model."""
    if not notebook.has_kernel:  # a terminal has no cells that are run again
        return record
    key = (record.name, _cell_id(notebook.shell) or content)  # who runs notebooks by program tells no ids
    known, had_none = notebook.definitions.get(key, ((), False))
    if known != content:
        notebook.definitions[key] = (content, not record.changes)
        return record
    return replace(record, changes=()) if had_none else record


def _cell_id(shell: Any) -> str:
    parent = shell.get_parent() if hasattr(shell, "get_parent") else None
    metadata = parent.get("metadata") if isinstance(parent, dict) else None
    return str(metadata.get("cellId") or "") if isinstance(metadata, dict) else ""
