"""Find the batching models whose requests ran one by one, from the models' statistics before and after a profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from bls_notebook.engine.core.model import LoadedModel, in_memory
from bls_notebook.records.statistics import StatisticsRecord, Times, why_not_batched
from bls_notebook.repository.statistics import statistics_record_of


def batch_statistics() -> dict[LoadedModel, StatisticsRecord]:
    """Return the statistics of the local models that batch."""
    local = (model for model in list(in_memory) if not model.seen.remote)
    return {model: statistics_record_of(model) for model in local if model.spec.max_batch_size > 1}


def unbatched(before: Mapping[LoadedModel, StatisticsRecord]) -> tuple[str, ...]:
    """Return a line for each batching model whose requests have run one by one since `before`."""
    lines = []
    for model, now in batch_statistics().items():
        then = before.get(model, StatisticsRecord(model.name))
        since = replace(
            now,
            executions=now.executions - then.executions,
            success=Times(now.compute_infer.count - then.compute_infer.count),
            cache_hit=Times(),
            waited=now.waited - then.waited,
            ended=tuple((Counter(dict(now.ended)) - Counter(dict(then.ended))).items()),
        )
        why = why_not_batched(since)
        if why is not None:
            lines.append(f"`{model.name}`: {why.sentence}")
    return tuple(sorted(lines))
