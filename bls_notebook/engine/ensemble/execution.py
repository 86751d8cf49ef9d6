"""`EnsembleExecution`: what the requests of an ensemble's steps hang on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bls_notebook.engine.calling import SendingExecution

__all__ = ["EnsembleExecution"]


class EnsembleExecution(SendingExecution):
    """What the requests of the steps hang on."""

    combined = True
    inline_thread = 0  # runs a step itself, at this moment

    @property
    def instance_name(self) -> str:
        """Name of the ensemble; it has no instances."""
        return self.model.name if self.model is not None else "ensemble"

    def waits_for(self, blocked: Mapping[int, Any]) -> list[Any]:
        """Return the requests that must all be answered before the ensemble is; the wait graph asks."""
        tickets: list[Any] = list(self.children)
        waiting = blocked.get(self.inline_thread) if self.inline_thread else None
        if waiting is not None:
            tickets.append(waiting)
        return tickets
