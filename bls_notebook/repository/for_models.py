"""What models ask of the repository that they are in: `pb_utils.load_model` and the like."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from bls_notebook.engine.errors import ConfigError, InvalidNameError, ModelLoadError, ModelNotFoundError
from bls_notebook.observe.metrics import Metrics
from bls_notebook.observe.records.repository import ModelRecord

from .loading.loader import POLL_FAILED

__all__ = ["ForModels"]


class ForModels(ABC):
    """The part of a repository that models reach (`engine.server.Loader`); errors are in Triton's words."""

    metrics: Metrics

    @abstractmethod
    def load(
        self,
        name: str,
        config: str | Mapping[str, Any] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> ModelRecord:
        """Load a model; see `ModelRepository`."""

    @abstractmethod
    def unload(self, name: str, unload_dependents: bool = False) -> None:
        """Take a model out of service; see `ModelRepository`."""

    def load_by_model(self, name: str, config: str, files: dict[str, bytes] | None) -> None:
        """Load for `pb_utils.load_model`; what it raises says why in Triton's words."""
        try:
            self.load(name, config or None, files)
        except ModelLoadError as error:
            raise ModelLoadError(error.reason, name) from error
        except (ModelNotFoundError, InvalidNameError) as error:
            reason = getattr(error, "reason", "") or POLL_FAILED.format(name=name)
            raise ModelLoadError(reason, name) from error
        except ConfigError as error:
            raise ModelLoadError(error.reason or str(error), name) from error

    def unload_by_model(self, name: str, unload_dependents: bool) -> None:
        """Unload for `pb_utils.unload_model`."""
        try:
            self.unload(name, unload_dependents)
        except ModelLoadError as error:
            raise ModelLoadError(error.reason, name) from error

    def metric_family(self, name: str, description: str, kind: str) -> Any:
        """Return a family of custom metrics."""
        return self.metrics.family(name, description, kind)
