"""The repository that magics and bare calls use when none is named."""

from __future__ import annotations

import threading

from .repository import ModelRepository

_lock = threading.Lock()
_current: ModelRepository | None = None


def current_repository() -> ModelRepository:
    """Return the repository that magics use; at first, one in memory only."""
    global _current
    with _lock:
        if _current is None:
            _current = ModelRepository()
        return _current


def set_current_repository(repository: ModelRepository | None) -> None:
    """Make magics use another repository; None for a fresh one when next needed. Closes nothing."""
    global _current
    with _lock:
        _current = repository
