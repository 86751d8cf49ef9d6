"""`Dependencies`: which ensembles are wanted, also while a model that they need is away."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable

from bls_notebook.repository.source.model_source import ModelSource


class Dependencies:
    """Ensembles that are wanted, and the models that were asked for by name. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ensembles: dict[str, tuple[ModelSource, frozenset[str]]] = {}
        self._explicit: set[str] = set()

    def want(self, source: ModelSource, members: Collection[str]) -> None:
        """Remember an ensemble; a model without members is no ensemble, and is forgotten as one."""
        with self._lock:
            if members:
                self._ensembles[source.name] = (source, frozenset(members))
            else:
                self._ensembles.pop(source.name, None)

    def asked_for(self, name: str) -> None:
        """Remember that a model was loaded for its own sake, not as a member of an ensemble."""
        with self._lock:
            self._explicit.add(name)

    def forget(self, name: str) -> frozenset[str]:
        """Forget a model; return its members."""
        with self._lock:
            self._explicit.discard(name)
            return self._ensembles.pop(name, (None, frozenset[str]()))[1]

    def clear(self) -> None:
        with self._lock:
            self._ensembles.clear()
            self._explicit.clear()

    def wanted(self, name: str) -> ModelSource | None:
        """Return an ensemble that is wanted, as it was loaded last."""
        with self._lock:
            return self._ensembles.get(name, (None, None))[0]

    def users(self, name: str) -> list[ModelSource]:
        """Return the ensembles that have a model as a step."""
        with self._lock:
            return [source for source, members in self._ensembles.values() if name in members]

    def all_users(self, name: str) -> list[str]:
        """Return the names of the ensembles that need a model, also through other ensembles."""
        out: dict[str, None] = {}
        todo = [name]
        for each in todo:  # grows
            for user in self.users(each):
                if user.name not in out and user.name != name:
                    out[user.name] = None
                    todo.append(user.name)
        return list(out)

    def orphans(self, names: Iterable[str]) -> list[str]:
        """Return those models that nobody asked for, and no ensemble needs any more."""
        with self._lock:
            explicit = set(self._explicit)
        return [n for n in sorted(names) if n not in explicit and not self.users(n)]
