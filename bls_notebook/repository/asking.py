"""`Asking`: what a repository can be asked of its models; a part of `ModelRepository`."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.server import Server

from .catalog import Catalog
from .config import ModelConfigMessage
from .statistics import statistics_of, statistics_record_of

if TYPE_CHECKING:
    from bls_notebook.records.repository import ModelRecord
    from bls_notebook.records.statistics import StatisticsRecord


class Asking:
    """What changes nothing."""

    _catalog: Catalog
    _server: Server

    def ready(self, name: str, version: int | None = None) -> bool:
        """Whether a model serves: the given version, or any."""
        return self._catalog.ready(name, version)

    def index(self, folders: bool = True) -> list[ModelRecord]:
        """Return a record for every version of every model that is known, by name and version.

        Parameters
        ----------
        folders : bool
            Whether to list models in the folders that were never loaded, too.
        """
        return self._catalog.service.index.rows(self._catalog.paths if folders else ())

    def config(self, name: str) -> ModelConfigMessage:
        """Return the completed configuration of a model, a copy; ModelNotFoundError where none serves."""
        return deepcopy(self._catalog.ready_model(name).spec.config)

    def record(self, name: str) -> ModelRecord:
        """Return the record of the newest version of a model that serves."""
        return self._catalog.service.index.record(name, self._catalog.ready_model(name).version)

    def statistics(self, name: str) -> dict[str, Any]:
        """Return what a model has done, by version, in the shape of Triton's statistics.

        Times (``ns``) are in nanoseconds. Of an ensemble, ``compute_infer`` is the time of its steps, added
        up. Of a remote model they are its server's, of all who ask it. Where none of this name serves, it is
        a ModelNotFoundError.
        """
        self._catalog.ready_model(name)
        return {"model_stats": [statistics_of(model) for model in self._versions(name)]}

    def statistics_records(self, *names: str) -> list[StatisticsRecord]:
        """Return what models have done, by default all that serve: a record for each version.

        Where none of a name serves, it is a ModelNotFoundError.
        """
        for name in names:
            self._catalog.ready_model(name)
        models = [m for name in dict.fromkeys(names or self._server.names()) for m in self._versions(name)]
        return [statistics_record_of(model) for model in models]

    def _versions(self, name: str) -> list[LoadedModel]:
        return [model for _, model in sorted(self._server.serving(name).items())]

    @property
    def last_failure(self) -> BaseException | None:
        """The last exception that a model raised, with its traceback; for post-mortem debugging."""
        return self._server.last_failure
