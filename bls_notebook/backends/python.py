"""The Python backend: an instance of the model's `TritonPythonModel`.

Mirrors python_backend/src/pb_stub.cc: `initialize` and `finalize` are optional, `execute` may be a
coroutine function, `is_ready` may be either.
"""

from __future__ import annotations

import inspect
from typing import Any

from bls_notebook.pb_utils.errors import TritonModelException
from bls_notebook.pb_utils.request import InferenceRequest

__all__ = ["PythonInstance", "model_class"]

CLASS_NAME = "TritonPythonModel"


def model_class(module: Any, name: str) -> type[Any]:
    """Return the model's class.

    Raises
    ------
    AttributeError
        The module has none; worded as in Triton, whose name for the module is ``<version>.<file>``.
    """
    found = getattr(module, CLASS_NAME, None)
    if found is None:
        raise AttributeError(f"module '{name}' has no attribute '{CLASS_NAME}'")
    return found  # type: ignore[no-any-return]


class PythonInstance:
    """One instance of a Python model.

    Parameters
    ----------
    cls : type
        The model's class; its instance is made and initialized here.
    arguments : dict of str to str
        What `initialize` receives.
    path : str
        Of model.py, for messages.
    """

    def __init__(self, cls: type[Any], arguments: dict[str, str], path: str) -> None:
        self.model = cls()
        self.asks_ready = hasattr(self.model, "is_ready")
        self.path = path
        initialize = getattr(self.model, "initialize", None)
        if initialize is not None:
            initialize(arguments)
        execute = getattr(self.model, "execute", None)
        if execute is None:
            self.is_async = False
            self.execute = self._no_execute
        else:
            self.is_async = inspect.iscoroutinefunction(execute)
            self.execute = execute

    def _no_execute(self, requests: list[InferenceRequest]) -> Any:
        raise TritonModelException(f"Python model {self.path} does not implement `execute` method.")

    def finalize(self) -> None:
        """Call the model's `finalize`, if it has one."""
        finalize = getattr(self.model, "finalize", None)
        self.execute = self._no_execute
        if finalize is not None:
            finalize()
        del self.model

    def ready(self) -> bool:
        """Whether the model's `is_ready` says so; True where it has none."""
        check = getattr(self.model, "is_ready", None)
        if check is None:
            return True
        answer = check()
        if inspect.isawaitable(answer):
            import asyncio

            async def wait() -> Any:
                return await answer

            answer = asyncio.run(wait())
        return answer is True
