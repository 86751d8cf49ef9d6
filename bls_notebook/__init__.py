"""A Jupyter-first environment for Triton Business Logic Scripting.

`import bls_notebook` makes `import triton_python_backend_utils` work in this process.
`%load_ext bls_notebook` adds the magics to a notebook.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from . import pb_utils
from .backends.registry import register_backend_module
from .capabilities import MissingCapabilityError, registry
from .devices.registry import register_simulator
from .engine.errors import (
    BLSError,
    ConfigError,
    InvalidNameError,
    ModelLoadError,
    ModelNotFoundError,
    RepositoryClosedError,
)
from .records import progress as _progress
from .records.record_file import load
from .repository.gpus import cupy, list_devices
from .repository.repository import ModelRepository, current_repository, set_current_repository
from .repository.requests.response import Response

__version__ = "0.1.0"


__all__ = [
    "BLSError",
    "ConfigError",
    "InvalidNameError",
    "ModelLoadError",
    "ModelNotFoundError",
    "ModelRepository",
    "RepositoryClosedError",
    "Response",
    "cupy",
    "current_repository",
    "list_devices",
    "load",
    "pb_utils",
    "set_current_repository",
]
__all__ += registry().keys("names")  # noqa: PLE0605

register_simulator(lambda *settings: registry().load("hooks", "simulated GPUs")(*settings))
for _backend in registry().keys("backends"):
    register_backend_module(_backend, partial(registry().load, "backends", _backend))

# In this process only; inside Triton's own stub, its module is there already and stays.
for _name in ("triton_python_backend_utils", "c_python_backend_utils"):
    sys.modules.setdefault(_name, pb_utils)


def _new_bar() -> Any:
    from .display.progress import new_bar

    return new_bar()


_progress.bars.append(_new_bar)


def load_ipython_extension(ipython: Any) -> None:
    """Add the magics to a shell (``%load_ext bls_notebook``)."""
    from .magics import load

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Take the magics away again (``%unload_ext bls_notebook``)."""
    from .magics import unload

    unload(ipython)


def __getattr__(name: str) -> Any:
    try:
        value = globals()[name] = registry().load("names", name)
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    except MissingCapabilityError as error:
        raise AttributeError(str(error)) from None
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
