"""`ForModels`: what models ask of the repository that they are in, `pb_utils.load_model` and the like."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bls_notebook.engine.errors import ConfigError, InvalidNameError, ModelLoadError, ModelNotFoundError

from .loading.loader import POLL_FAILED

Config = str | Mapping[str, Any]


class ForModels:
    """What the server is given to load and unload at the request of models (`engine.core.server.Loader`)."""

    def __init__(
        self,
        load: Callable[[str, Config | None, Mapping[str, bytes] | None], object],
        unload: Callable[[str, bool], object],
        family: Callable[[str, str, str], Any],
    ) -> None:
        self._load, self._unload, self.metric_family = load, unload, family

    def load_by_model(self, name: str, config: str, files: dict[str, bytes] | None) -> None:
        with _words_of_triton(name):
            self._load(name, config or None, files)

    def unload_by_model(self, name: str, unload_dependents: bool) -> None:
        with _words_of_triton(name):
            self._unload(name, unload_dependents)


@contextmanager
def _words_of_triton(name: str) -> Iterator[None]:
    """Have errors say why in Triton's words."""
    try:
        yield
    except (ModelLoadError, ConfigError) as error:
        raise ModelLoadError(error.reason or str(error), name) from error
    except (ModelNotFoundError, InvalidNameError) as error:
        reason = getattr(error, "reason", "") or POLL_FAILED.format(name=name)
        raise ModelLoadError(reason, name) from error
