"""The Python backend: runs instances of a model's `TritonPythonModel`.

Mirrors python_backend/src/pb_stub.cc: `initialize`, `finalize` and `is_ready` are optional; `execute` and `is_ready`
may be coroutine functions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from bls_notebook.devices.instance_gpu import OwnGPU
from bls_notebook.pb_utils.errors import TritonModelException
from bls_notebook.pb_utils.model_config import ModelConfig
from bls_notebook.pb_utils.request import InferenceRequest

from .protocol import Modules, VersionFiles

CLASS_NAME = "TritonPythonModel"


class PythonModel:
    """One version of a Python model; the constructor imports its model.py."""

    def __init__(self, files: VersionFiles) -> None:
        self._files = files
        folder = files.backend_folder
        if folder is None:
            self._file = files.folder / (files.filename or "model.py")
            self._name = f"{files.version}.{self._file.stem}"
        else:
            self._file, self._name = folder / "model.py", "model"
        self._first: tuple[type[Any], Modules, OwnGPU] | None = self._load()

    def _load(self) -> tuple[type[Any], Modules, OwnGPU]:
        if not self._file.is_file():
            raise FileNotFoundError(f"Python model file not found in '{self._file}'")
        modules, own = self._files.new_modules(), OwnGPU()
        with own.current():
            cls = getattr(modules.load(self._name, self._file), CLASS_NAME, None)
        if cls is None:  # Triton's message, with its name for the module
            raise AttributeError(f"module '{self._name}' has no attribute '{CLASS_NAME}'")
        return cls, modules, own

    @property
    def auto_complete_config(self) -> Callable[[ModelConfig], ModelConfig] | None:
        if self._first is None or not hasattr(self._first[0], "auto_complete_config"):
            return None
        cls, modules, own = self._first

        def complete(config: ModelConfig) -> ModelConfig:
            self._first = None  # on a server, another process completes the configuration
            try:
                completed: ModelConfig = cls.auto_complete_config(config)
                return completed
            finally:
                modules.forget()

        return own.around(complete)

    def make_instance(self, arguments: dict[str, str]) -> PythonInstance:
        """Return a new, initialized instance with its own copy of the modules, as on Triton."""
        (cls, modules, own), self._first = self._first or self._load(), None
        return PythonInstance(cls, arguments, str(self._file), modules, own)


open_model = PythonModel


class PythonInstance:
    """One instance of a Python model; the constructor calls its `initialize`."""

    def __init__(self, cls: type[Any], arguments: dict[str, str], path: str, modules: Modules, own: OwnGPU) -> None:
        self._own = own.current
        with self._own():
            self.model = cls()
        self.asks_ready = hasattr(self.model, "is_ready")
        self.path = path
        self._modules = modules
        initialize = getattr(self.model, "initialize", None)
        if initialize is not None:
            with self._own():
                initialize(arguments)
        execute = getattr(self.model, "execute", None)
        if execute is None:
            self.is_async = False
            self.execute = self._no_execute
        else:
            self.is_async = inspect.iscoroutinefunction(execute)
            self.execute = own.into(execute) if self.is_async else own.around(execute)

    def _no_execute(self, requests: list[InferenceRequest]) -> Any:
        raise TritonModelException(f"Python model {self.path} does not implement `execute` method.")

    def finalize(self) -> None:
        finalize = getattr(self.model, "finalize", None)
        self.execute = self._no_execute
        try:
            if finalize is not None:
                with self._own():
                    finalize()
        finally:
            del self.model
            self._modules.forget()

    def ready(self) -> bool:
        """Return whether the model's `is_ready` returns True; True if it has none."""
        check = getattr(self.model, "is_ready", None)
        if check is None:
            return True
        with self._own():
            answer = check()
            if inspect.isawaitable(answer):
                import asyncio

                async def wait() -> Any:
                    return await answer

                answer = asyncio.run(wait())
        return answer is True
