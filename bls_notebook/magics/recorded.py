"""What magics recorded last, for ``%blscheck`` to judge."""

from __future__ import annotations

from typing import Any

from .notebook import Notebook


def remember(notebook: Notebook, recorded: Any) -> None:
    """Keep what can be judged of what a magic recorded, until the next does."""
    from bls_notebook.observe.analysis.claims import records_of

    notebook.recorded.update(records_of(recorded))
    if type(recorded).__name__ in ("Profile", "MemoryTrack"):  # no more: a response has tensors
        notebook.kept[type(recorded).__name__] = recorded
