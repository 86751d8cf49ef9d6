"""Which scheduler a model version gets: the one that its configuration asks for, behind the cache or not."""

from __future__ import annotations

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.ensemble.scheduler import EnsembleScheduler

from .caching import CachingScheduler
from .default import DefaultScheduler
from .dynamic import DynamicBatcher
from .protocol import Scheduler
from .sequence import SequenceBatcher

__all__ = ["scheduler_for"]


def scheduler_for(model: LoadedModel) -> Scheduler:
    """Return a new scheduler for a model version."""
    scheduler = _scheduler(model)
    spec = model.spec
    if (
        spec.response_cache
        and model.server.cache.size
        and not spec.decoupled
        and spec.scheduler != "sequence"
    ):
        return CachingScheduler(model, scheduler)
    return scheduler


def _scheduler(model: LoadedModel) -> Scheduler:
    if model.spec.scheduler == "ensemble":
        return EnsembleScheduler(model)
    if model.spec.scheduler == "dynamic":
        return DynamicBatcher(model)
    if model.spec.scheduler == "sequence":
        return SequenceBatcher(model)
    return DefaultScheduler(model)
