"""`load_with_callees`: models out of a folder, together with those that they call."""

from __future__ import annotations

from collections.abc import Iterable

from bls_notebook.engine.errors import BLSError
from bls_notebook.repository.repository import ModelRepository

from .one import plan_of


def load_with_callees(repository: ModelRepository, names: Iterable[str] = ()) -> None:
    """Load models, by default all, and what they call, as far as sources and configurations say.

    Raises
    ------
    BLSError
        A model cannot be loaded. One whose name only stands as a text in the code of another may fail.
    """
    known = {record.name for record in repository.index()}
    asked = list(names) or sorted(known)
    certain, loaded = set(asked), set[str]()
    while asked:
        name = asked.pop(0)
        if name in loaded:
            continue
        loaded.add(name)
        try:
            repository.load(name)
        except BLSError:
            if name in certain:
                raise
            continue
        plan = plan_of(repository, name, known, None)
        certain |= plan.named
        asked += sorted(plan.calls & known - loaded)
