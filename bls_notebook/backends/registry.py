"""The backends there are, by the names that config.pbtxt uses; each is imported when first used."""

from __future__ import annotations

from importlib import import_module

from .protocol import OpenModel

# A new backend is one module with an `open_model`, and its line here. One whose runtime may be built for the
# CPU alone says by a `has_gpu()` beside it whether it is.
_MODULES = {
    "onnxruntime": "bls_notebook.engines.onnxruntime",
    "python": "bls_notebook.backends.python",
    "pytorch": "bls_notebook.engines.pytorch",
}
_registered: dict[str, OpenModel] = {}


def backend_names() -> tuple[str, ...]:
    """Return the names of the backends, sorted."""
    return tuple(sorted({*_MODULES, *_registered}))


def register_backend(name: str, open_model: OpenModel) -> None:
    """Add a backend of your own, or replace one.

    Parameters
    ----------
    name : str
        As in ``backend: "name"``.
    open_model : callable
        Takes a `VersionFiles` and returns a `BackendModel`; see `backends.protocol`.
    """
    _registered[name] = open_model


def find_backend(name: str) -> OpenModel | None:
    """Return the `open_model` of a backend, None where there is no such backend."""
    if name in _MODULES and name not in _registered:
        return import_module(_MODULES[name]).open_model  # type: ignore[no-any-return]
    return _registered.get(name)


def has_runtime(name: str, runtime: str) -> bool:
    """Whether a backend here runs models for which their configuration names this runtime of it."""
    return name in _MODULES and runtime in getattr(import_module(_MODULES[name]), "RUNTIMES", ())


def runs_on_gpu(name: str) -> bool:
    """Whether `KIND_AUTO` may become `KIND_GPU` for a backend, where there is a GPU."""
    if name not in _MODULES or name in _registered:
        return True
    has_gpu = getattr(import_module(_MODULES[name]), "has_gpu", None)
    return has_gpu is None or bool(has_gpu())
