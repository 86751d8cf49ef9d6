"""Which scheduler a model version gets: the one that its configuration asks for, behind the cache or not."""

from __future__ import annotations

from collections.abc import Callable

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.ensemble.scheduler import EnsembleScheduler

from .caching import CachingScheduler
from .default import DefaultScheduler
from .dynamic import DynamicBatcher
from .protocol import Scheduler
from .sequence import SequenceBatcher

__all__ = ["scheduler_for"]


_SCHEDULERS: dict[str, Callable[[LoadedModel], Scheduler]] = {
    "default": DefaultScheduler,
    "dynamic": DynamicBatcher,
    "sequence": SequenceBatcher,
    "ensemble": EnsembleScheduler,
}


def scheduler_for(model: LoadedModel) -> Scheduler:
    """Return a new scheduler for a model version."""
    spec = model.spec
    scheduler = _SCHEDULERS[spec.scheduler](model)
    cached = spec.response_cache and model.server.cache.size and not spec.decoupled
    return CachingScheduler(model, scheduler) if cached and spec.scheduler != "sequence" else scheduler
