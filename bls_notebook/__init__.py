"""A Jupyter-first environment for Triton Business Logic Scripting.

`import bls_notebook` makes `import triton_python_backend_utils` work in this process.
`%load_ext bls_notebook` adds the magics to a notebook.
"""

from __future__ import annotations

import atexit
import sys
from concurrent.futures import thread as _threads
from functools import partial
from multiprocessing import util as _processes
from typing import Any

from bls_notebook.backends.protocol import register_backend_module

from . import pb_utils
from . import progress as _progress
from .capabilities import registry
from .devices.registry import register_simulator
from .records.base import text_renderers as _text_renderers

__all__ = ["pb_utils"]
__all__ += registry().keys("names")  # noqa: PLE0605  # imported when they are first used

register_simulator(lambda *settings: registry().load("hooks", "simulated GPUs")(*settings))
for _backend in registry().keys("backends"):
    register_backend_module(_backend, partial(registry().load, "backends", _backend))

# Only in this process: child processes must import the package too. On a server, the real module is already imported,
# and `setdefault` keeps it.
for _name in ("triton_python_backend_utils", "c_python_backend_utils"):
    sys.modules.setdefault(_name, pb_utils)


def _new_bar() -> Any:
    from .display.progress_bar import new_bar

    return new_bar()


def _text_of(value: object) -> str | None:
    from .display.mime_bundle import text_of

    return text_of(value)


_progress.bars.append(_new_bar)
_text_renderers.append(_text_of)


# Python runs exit hooks in reverse order of registration. So hooks registered after the import of this package can
# still use repositories. The hooks of `_threads` and `_processes`, imported above, wait for pool threads and child
# processes: they must run after the repositories are closed.
_ = _threads, _processes


@atexit.register
def _close_repositories() -> None:
    shutdown = sys.modules.get(f"{__name__}.repository.shutdown")
    if shutdown is not None:
        shutdown.close_all()


def load_ipython_extension(ipython: Any) -> None:
    """Add the magics to a shell (``%load_ext bls_notebook``)."""
    from .magics.extension import load

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Remove the magics from a shell (``%unload_ext bls_notebook``)."""
    from .magics.extension import unload

    unload(ipython)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = version(__name__)
        except PackageNotFoundError:  # a copy of the files, not an installation
            found = "unknown"
        return globals().setdefault(name, found)
    try:
        value = globals()[name] = registry().load("names", name)
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
