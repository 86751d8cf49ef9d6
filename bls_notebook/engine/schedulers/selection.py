"""Which scheduler a model version gets: the one that its configuration asks for, behind the cache or not."""

from __future__ import annotations

from bls_notebook.engine.core.model import LoadedModel

from .cached_scheduler import CachingScheduler
from .default import DefaultScheduler
from .dynamic import DynamicBatcher
from .protocol import Scheduler


def _made(model: LoadedModel) -> Scheduler:
    """Most models need one of the first two: the others are imported when a model asks for them."""
    kind = model.spec.scheduler
    if kind == "default":
        return DefaultScheduler(model)
    if kind == "dynamic":
        return DynamicBatcher(model)
    if kind == "sequence":
        from .sequence import SequenceBatcher

        return SequenceBatcher(model)
    from bls_notebook.engine.ensemble.scheduler import EnsembleScheduler

    return EnsembleScheduler(model)


def scheduler_for(model: LoadedModel) -> Scheduler:
    """Return a new scheduler for a model version."""
    spec = model.spec
    if model.seen.remote:  # which does all of it where it is
        from .forwarding import ForwardingScheduler

        return ForwardingScheduler(model)
    scheduler = _made(model)
    cached = spec.response_cache and model.server.cache.size and not spec.decoupled
    return CachingScheduler(model, scheduler) if cached and spec.scheduler != "sequence" else scheduler
