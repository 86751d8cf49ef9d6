"""A Jupyter-first environment for Triton Business Logic Scripting.

`import bls_notebook` makes `import triton_python_backend_utils` work in this process.
`%load_ext bls_notebook` adds the magics to a notebook.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import pb_utils
from .backends.registry import register_backend_module
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
from .repository.current import current_repository, set_current_repository
from .repository.gpus import cupy, list_devices, simulate_gpus
from .repository.repository import ModelRepository
from .repository.requests.response import Response

if TYPE_CHECKING:
    from .checking.all_checks import check
    from .inspection.inspection import Inspection, inspect
    from .inspection.watching import watch
    from .lifetimes.memory_recording import track_memory
    from .lifetimes.records import load_lifetimes
    from .network.connection.connection import Connection, connect
    from .network.gateway.server import Endpoint, endpoint
    from .profiling.recording.profiler import Profile, mark, profile
    from .profiling.records.comparison import Comparison, load_comparison
    from .profiling.records.overlap import Overlap
    from .profiling.records.session import Session, load_session
    from .profiling.records.tuning import Tuning
    from .profiling.server_trace import load_server_trace
    from .profiling.sync_vs_async import compare
    from .profiling.tuner import tune
    from .shipping.exports.exporter import export
    from .shipping.proof.proving import prove_equal
    from .shipping.servers.serving import LocalServer, serve
    from .testing.claims import judge
    from .testing.drills.driller import drill
    from .testing.recording.recorder import record
    from .testing.recording.recording import Recording, load_recording
    from .testing.recording.replaying import replay
    from .trying.trial import try_repository

__version__ = "0.1.0"


def _simulate(count: int, capacity: int, in_torch: bool) -> Any:
    from .simulation.backend import simulate

    return simulate(count, capacity, in_torch)


def _onnxruntime() -> Any:
    from .engines import onnxruntime

    return onnxruntime


def _pytorch() -> Any:
    from .engines import pytorch

    return pytorch


register_simulator(_simulate)
register_backend_module("onnxruntime", _onnxruntime)
register_backend_module("pytorch", _pytorch)

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
    "check",
    "compare",
    "connect",
    "cupy",
    "current_repository",
    "drill",
    "endpoint",
    "export",
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
    "watch",
]

# Imported when they are first asked for: what measures, and what is computed from it.
_LATER = {
    "Comparison": "profiling.records.comparison",
    "Connection": "network.connection.connection",
    "Endpoint": "network.gateway.server",
    "Inspection": "inspection.inspection",
    "LocalServer": "shipping.servers.serving",
    "Overlap": "profiling.records.overlap",
    "Profile": "profiling.recording.profiler",
    "Recording": "testing.recording.recording",
    "Session": "profiling.records.session",
    "Tuning": "profiling.records.tuning",
    "check": "checking.all_checks",
    "compare": "profiling.sync_vs_async",
    "connect": "network.connection.connection",
    "endpoint": "network.gateway.server",
    "drill": "testing.drills.driller",
    "export": "shipping.exports.exporter",
    "judge": "testing.claims",
    "inspect": "inspection.inspection",
    "load_comparison": "profiling.records.comparison",
    "load_lifetimes": "lifetimes.records",
    "load_recording": "testing.recording.recording",
    "load_server_trace": "profiling.server_trace",
    "load_session": "profiling.records.session",
    "mark": "profiling.recording.profiler",
    "profile": "profiling.recording.profiler",
    "prove_equal": "shipping.proof.proving",
    "record": "testing.recording.recorder",
    "replay": "testing.recording.replaying",
    "serve": "shipping.servers.serving",
    "track_memory": "lifetimes.memory_recording",
    "try_repository": "trying.trial",
    "tune": "profiling.tuner",
    "watch": "inspection.watching",
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
