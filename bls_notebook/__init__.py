"""A Jupyter-first environment for Triton Business Logic Scripting.

`import bls_notebook` makes `import triton_python_backend_utils` work in this process.
`%load_ext bls_notebook` adds the magics to a notebook.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import pb_utils
from .engine.errors import (
    BLSError,
    ConfigError,
    InvalidNameError,
    ModelLoadError,
    ModelNotFoundError,
    RepositoryClosedError,
)
from .observe import progress as _progress
from .repository.current import current_repository, set_current_repository
from .repository.gpus import cupy, list_devices, simulate_gpus
from .repository.repository import ModelRepository
from .repository.requests.response import Response

if TYPE_CHECKING:
    from .engine.recording.marks import mark
    from .engine.recording.memory_track import track_memory
    from .engine.recording.profile import Profile, profile
    from .observe.analysis.claims import judge
    from .observe.importing.server_trace import load_server_trace
    from .observe.records.lifetimes import load_lifetimes
    from .observe.records.profiles.comparison import Comparison, load_comparison
    from .observe.records.profiles.overlap import Overlap
    from .observe.records.profiles.session import Session, load_session
    from .observe.records.profiles.tuning import Tuning
    from .repository.connecting import Connection, connect
    from .repository.inspecting.inspection import Inspection, inspect
    from .repository.profiling.comparing import compare
    from .repository.profiling.tuning import tune
    from .repository.trying.trial import try_repository
    from .testing.drills.drill import drill
    from .testing.recording.record import record
    from .testing.recording.recording import Recording, load_recording
    from .testing.recording.replaying import replay
    from .triton.endpoint.endpoint import Endpoint, endpoint
    from .triton.proving.prove import prove_equal
    from .triton.serving import LocalServer, serve

__version__ = "0.1.0"

__all__ = [
    "BLSError",
    "Comparison",
    "ConfigError",
    "Connection",
    "Endpoint",
    "Inspection",
    "InvalidNameError",
    "LocalServer",
    "ModelLoadError",
    "ModelNotFoundError",
    "ModelRepository",
    "Overlap",
    "Profile",
    "Recording",
    "RepositoryClosedError",
    "Response",
    "Session",
    "Tuning",
    "compare",
    "connect",
    "cupy",
    "current_repository",
    "drill",
    "endpoint",
    "inspect",
    "judge",
    "list_devices",
    "load_comparison",
    "load_ipython_extension",
    "load_lifetimes",
    "load_recording",
    "load_server_trace",
    "load_session",
    "mark",
    "pb_utils",
    "profile",
    "prove_equal",
    "record",
    "replay",
    "serve",
    "set_current_repository",
    "simulate_gpus",
    "track_memory",
    "try_repository",
    "tune",
    "unload_ipython_extension",
]

# Imported when they are first asked for: what measures, and what is computed from it.
_LATER = {
    "Comparison": "observe.records.profiles.comparison",
    "Connection": "repository.connecting",
    "Endpoint": "triton.endpoint.endpoint",
    "Inspection": "repository.inspecting.inspection",
    "LocalServer": "triton.serving",
    "Overlap": "observe.records.profiles.overlap",
    "Profile": "engine.recording.profile",
    "Recording": "testing.recording.recording",
    "Session": "observe.records.profiles.session",
    "Tuning": "observe.records.profiles.tuning",
    "compare": "repository.profiling.comparing",
    "connect": "repository.connecting",
    "endpoint": "triton.endpoint.endpoint",
    "drill": "testing.drills.drill",
    "judge": "observe.analysis.claims",
    "inspect": "repository.inspecting.inspection",
    "load_comparison": "observe.records.profiles.comparison",
    "load_lifetimes": "observe.records.lifetimes",
    "load_recording": "testing.recording.recording",
    "load_server_trace": "observe.importing.server_trace",
    "load_session": "observe.records.profiles.session",
    "mark": "engine.recording.marks",
    "profile": "engine.recording.profile",
    "prove_equal": "triton.proving.prove",
    "record": "testing.recording.record",
    "replay": "testing.recording.replaying",
    "serve": "triton.serving",
    "track_memory": "engine.recording.memory_track",
    "try_repository": "repository.trying.trial",
    "tune": "repository.profiling.tuning",
}

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
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
