"""`scheduler_for`: the scheduler that a model's configuration requires, with or without a response cache."""

from __future__ import annotations

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.scheduler import Scheduler

from .caching_scheduler import CachingScheduler
from .default import DefaultScheduler
from .dynamic import DynamicBatcher, OneByOne


def _made(model: LoadedModel) -> Scheduler:
    """Make a local model's scheduler; import the two rarer ones only when needed."""
    kind = model.spec.scheduler
    if kind == "default":
        return DefaultScheduler(model) if model.server.rate_limiter is None else OneByOne(model)
    if kind == "dynamic":
        return DynamicBatcher(model)
    if kind == "sequence":
        from .sequence import SequenceBatcher

        return SequenceBatcher(model)
    from .ensemble import EnsembleScheduler

    return EnsembleScheduler(model)


def scheduler_for(model: LoadedModel) -> Scheduler:
    spec = model.spec
    if model.seen.remote:  # its server does the scheduling and caching
        from .forwarding import ForwardingScheduler

        return ForwardingScheduler(model)
    scheduler = _made(model)
    cached = spec.response_cache and model.server.cache.size and not spec.decoupled
    return CachingScheduler(model, scheduler) if cached and spec.scheduler != "sequence" else scheduler
