"""What the models of a repository have done: statistics in Triton's shape, and as records."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.server import Server
from bls_notebook.observe.metrics import Metrics
from bls_notebook.observe.records.statistics import StatisticsRecord, statistics_record

__all__ = ["Measured"]


class Measured:
    """The part of a repository that tells what its models have done.

    Attributes
    ----------
    metrics : Metrics
        Of the models, and Triton's own: `metrics.text()` is what Prometheus reads.
    """

    metrics: Metrics
    _server: Server

    @abstractmethod
    def _ready_model(self, name: str) -> LoadedModel:
        """Return a model that serves, or raise ModelNotFoundError."""

    def statistics(self, name: str) -> dict[str, Any]:
        """Return what a model has done, by version, in the shape of Triton's statistics.

        Times (``ns``) are in nanoseconds. Of an ensemble, ``compute_infer`` is the time of its steps, added
        up.

        Raises
        ------
        ModelNotFoundError
        """
        return {
            "model_stats": [
                {"name": name, "version": str(model.version), **model.statistics.as_dict()}
                for model in self._versions(name)
            ]
        }

    def statistics_records(self, *names: str) -> list[StatisticsRecord]:
        """Return what models have done, a record for each version that serves.

        Parameters
        ----------
        *names : str
            Of models; none for all that serve.

        Raises
        ------
        ModelNotFoundError
        """
        return [
            statistics_record(
                {"name": model.name, "version": str(model.version), **model.statistics.as_dict()},
                model.statistics.failures().items(),
                model.spec.max_batch_size > 0,
                model.spec.response_cache,
            )
            for model in self._serving(names)
        ]

    def _serving(self, names: Sequence[str]) -> Iterator[LoadedModel]:
        for name in dict.fromkeys(names):
            yield from self._versions(name)
        for name in () if names else self._server.names():
            yield from (model for _, model in sorted(self._server.serving(name).items()))

    def _versions(self, name: str) -> list[LoadedModel]:
        self._ready_model(name)
        return [model for _, model in sorted(self._server.serving(name).items())]
