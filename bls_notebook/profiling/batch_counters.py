"""Find the batching models whose requests ran one by one, from the models' counters before and after a profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from bls_notebook.engine.core.model import LoadedModel, in_memory
from bls_notebook.records.statistics import StatisticsRecord, Times, why_not_batched


class BatchCounters(NamedTuple):
    """Counters of a model version: computed requests, executions, and why batches waited and ended."""

    requests: int
    executions: int
    waited: int
    ended: Counter[str]


def counted() -> dict[LoadedModel, BatchCounters]:
    """Return the counters of the models that batch."""
    return {model: _counted(model) for model in list(in_memory) if model.spec.max_batch_size > 1}


def unbatched(before: Mapping[LoadedModel, BatchCounters]) -> tuple[str, ...]:
    """Return a line for each batching model whose requests have run one by one since `before`."""
    none = BatchCounters(0, 0, 0, Counter())
    lines = []
    for model, now in counted().items():
        then = before.get(model, none)
        why = why_not_batched(
            StatisticsRecord(
                model.name,
                executions=now.executions - then.executions,
                success=Times(now.requests - then.requests),
                scheduler=model.spec.scheduler,
                max_batch_size=model.spec.max_batch_size,
                waited=now.waited - then.waited,
                ended=tuple((now.ended - then.ended).items()),
            )
        )
        if why is not None:
            lines.append(f"`{model.name}`: {why.sentence}")
    return tuple(sorted(lines))


def _counted(model: LoadedModel) -> BatchCounters:
    statistics = model.statistics
    row = statistics.as_dict()
    requests = row["inference_stats"]["compute_infer"]["count"]
    return BatchCounters(requests, row["execution_count"], statistics.waited, Counter(statistics.ended.copy()))
