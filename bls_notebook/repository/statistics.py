"""What a model version has done, in the shape of Triton's statistics and as a record."""

from __future__ import annotations

from typing import Any

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.observe.records.statistics import StatisticsRecord, statistics_record

__all__ = ["statistics_of", "statistics_record_of"]


def statistics_of(model: LoadedModel) -> dict[str, Any]:
    """Return the statistics of a version in Triton's shape."""
    return {"name": model.name, "version": str(model.version), **model.statistics.as_dict()}


def statistics_record_of(model: LoadedModel) -> StatisticsRecord:
    """Return the statistics of a version as a record."""
    failures = model.statistics.failures().items()
    batches = model.spec.max_batch_size > 0
    return statistics_record(statistics_of(model), failures, batches, model.spec.response_cache)
