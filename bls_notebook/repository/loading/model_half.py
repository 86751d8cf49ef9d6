"""`ModelHalf`: the model's side of an instance, which runs at the instance's home.

Its methods are the steps of a home: `complete` (import the code, `auto_complete_config`), `initialize`, `finalize`.
`execute` is the model's own. Arguments and results are data, so that a home may be another process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from bls_notebook.backends.protocol import BackendInstance, BackendModel
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.model_code import Initializing, as_model
from bls_notebook.repository.config import ModelConfigMessage, auto_complete

_Result = TypeVar("_Result")


class ModelHalf:
    """The model's side of one instance of `model`.

    `open_files` opens the files of the version: the first instance calls it (`complete`), the others use its `opened`.
    """

    opened: BackendModel | None = None

    def __init__(
        self,
        server: Server,
        name: str,
        folder: str,
        model: str,
        open_files: Callable[[ModelConfigMessage], BackendModel],
    ) -> None:
        self._server = server
        self._name, self._folder, self._model = name, folder, model
        self._open_files = open_files
        self.instance: BackendInstance | None = None  # of the backend, once initialized
        self.modules: Any = None  # `ModuleHome` of the instance's modules, if it has any
        self.asks_ready = self.takes_gpu = self.is_async = False

    def complete(self, config: ModelConfigMessage) -> ModelConfigMessage:
        """Open the version's files, and return its configuration, completed by the model's code."""

        def complete() -> ModelConfigMessage:
            self.opened = self._open_files(config)
            return auto_complete(config, self.opened)

        return self._as_model(complete)

    def initialize(self, arguments: dict[str, str]) -> None:
        """Create the backend's instance, which runs the model's `initialize`."""
        assert self.opened is not None
        self._name = arguments["model_instance_name"]
        self.instance = instance = self._as_model(partial(self.opened.make_instance, arguments))
        self.asks_ready = getattr(instance, "asks_ready", False)
        self.takes_gpu = getattr(instance, "takes_gpu", False)
        self.execute = instance.execute
        self.is_async = instance.is_async

    def finalize(self) -> None:
        """Run the model's `finalize`, which releases its memory; do nothing if there is no instance."""
        instance, self.instance = self.instance, None
        if instance is not None:
            try:
                self._server.keep_metrics(self._name, self._folder)
                self._as_model(instance.finalize)
            finally:
                del self.execute

    def _as_model(self, call: Callable[[], _Result]) -> _Result:
        caller = Initializing(self._server, self._name, self._folder, self._model)
        caller.modules = self.modules
        try:
            return as_model(caller, call)
        finally:
            self.modules = caller.modules  # set by the backend that opens the files

    @property
    def model(self) -> Any:
        """The instance of the model's class; None if the backend has none."""
        return getattr(self.instance, "model", None)

    def ready(self) -> bool:
        """Return whether the instance can serve."""
        return self.instance is not None and self._as_model(self.instance.ready)
