"""Which scheduler a model version gets: the one that its configuration asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .dynamic_batcher import DynamicBatcher
from .scheduler import DefaultScheduler, Scheduler

if TYPE_CHECKING:
    from .model import LoadedModel

__all__ = ["scheduler_for"]


def scheduler_for(model: LoadedModel) -> Scheduler:
    """Return a new scheduler for a model version."""
    if model.spec.scheduler == "dynamic":
        return DynamicBatcher(model)
    return DefaultScheduler(model)
