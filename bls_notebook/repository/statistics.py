"""Statistics of a model version, in Triton's shape and as a record."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bls_notebook.engine.core.model import LoadedModel

if TYPE_CHECKING:
    from bls_notebook.records.statistics import StatisticsRecord


def statistics_of(model: LoadedModel) -> dict[str, Any]:
    """Return the statistics of a version in Triton's shape.

    A remote model's statistics are its server's, over all clients, or the local counts if the server reports none.
    """
    if model.seen.remote:
        backend: Any = model.instances[0].backend
        for row in backend.statistics():
            if str(row.get("version")) == str(model.version):
                return {**row, "name": model.name}
    return {"name": model.name, "version": str(model.version), **model.statistics.as_dict()}


def statistics_record_of(model: LoadedModel) -> StatisticsRecord:
    from bls_notebook.records.statistics import statistics_record  # first needed here

    failures = model.statistics.failures().items()
    spec, statistics = model.spec, model.statistics
    return replace(
        statistics_record(statistics_of(model), failures, spec.max_batch_size > 0, spec.response_cache),
        scheduler=spec.scheduler,
        max_batch_size=spec.max_batch_size,
        waited=statistics.waited,
        ended=tuple(statistics.ended.copy().items()),
    )
