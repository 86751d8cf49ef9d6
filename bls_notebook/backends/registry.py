"""The registry of backends by their names in config.pbtxt. A backend is imported when a model first needs it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import ModuleType

from .protocol import OpenModel

_modules: dict[str, Callable[[], ModuleType]] = {"python": partial(import_module, ".python", __package__)}


def backend_names() -> tuple[str, ...]:
    return tuple(sorted(_modules))


def register_backend_module(name: str, load: Callable[[], ModuleType]) -> None:
    """Add a backend that is imported when a model asks for it.

    `load` returns its module, which has an `open_model`, `has_gpu` if its runtime may lack GPUs, and the `RUNTIMES`
    for which it runs Python-based models of this name.
    """
    _modules[name] = load


def find_backend(name: str) -> OpenModel | None:
    """Return the `open_model` of a backend, or None."""
    return _modules[name]().open_model if name in _modules else None


def has_runtime(name: str, runtime: str) -> bool:
    """Return whether the package has a backend that replaces a Python-based one with this `runtime`."""
    return name in _modules and runtime in getattr(_modules[name](), "RUNTIMES", ())


def runs_on_gpu(name: str) -> bool:
    """Return whether `KIND_AUTO` may become `KIND_GPU` for a backend on a machine with a GPU."""
    if name not in _modules:
        return True
    has_gpu = getattr(_modules[name](), "has_gpu", None)
    return has_gpu is None or bool(has_gpu())
