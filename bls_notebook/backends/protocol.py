"""The interface of backends. Adding one is a module with an `open_model`.

The order at load, as on Triton: `open_model` finds the files of one version; `auto_complete_config` fills
in its configuration; `make_instance` is called for each instance of the completed configuration. Then
the engine calls `execute`, on any thread, never twice at a time in one instance. A model on a remote server has
a `RemoteBackend`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from bls_notebook.pb_utils.model_config import ModelConfig
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse


class BackendError(Exception):
    """A model that its backend rejects: one line, and Triton's word for the kind of failure."""

    def __init__(self, message: str, code: str = "Internal") -> None:
        super().__init__(message)
        self.code = code


class Modules(Protocol):
    """A private import system, in which one instance's Python files live."""

    def load(self, name: str, file: Path) -> ModuleType:
        """Import a file as a module of that name."""

    def forget(self) -> None:
        """Let go of the modules."""


@dataclass(frozen=True)
class VersionFiles:
    """The files of one version of a model."""

    name: str
    version: int
    model_folder: Path
    folder: Path  # the version's
    filename: str  # `default_model_filename` of the configuration; may be empty
    new_modules: Callable[[], Modules]  # returns a new import system, for backends that run Python files
    backend_folder: Path | None = None  # of a Python-based backend: its folder, whose model.py runs the model
    runtime: str = ""  # the backend's runtime in the configuration


class BackendInstance(Protocol):
    """One loaded instance. Unless it has a true `takes_gpu`, or is a Python model, its inputs are on the CPU."""

    is_async: bool

    def execute(self, requests: list[InferenceRequest]) -> Any:
        """Return a list of responses, None where they are sent another way, or a coroutine of these."""

    def finalize(self) -> None:
        """Let go of everything; called once, when no request is in flight."""

    def ready(self) -> bool:
        """Return whether the instance says that it can serve."""


class BackendModel(Protocol):
    """A model version while it is loaded. Lines in its optional `warnings` are shown with the loaded model."""

    @property
    def auto_complete_config(self) -> Callable[[ModelConfig], ModelConfig] | None:
        """Completes the batch size, inputs, outputs, scheduler and transaction policy of a configuration; or None."""

    def make_instance(self, arguments: dict[str, str]) -> BackendInstance:
        """Return a new, initialized instance; `arguments` are those of a Python model's `initialize`."""


class OpenModel(Protocol):
    """A backend's `open_model`."""

    def __call__(self, files: VersionFiles) -> BackendModel:
        """Open one version of a model; raise BackendError if files or a package that the backend needs are missing."""


REPORT_SECONDS = 10.0  # until a wait for an answer is reported
Deliver = Callable[[list[InferenceResponse], bool], None]  # in a list, so that nobody else holds it
InThread = Callable[[Callable[[], None]], None]


class Exchange(Protocol):
    """One request to a server, and its answers; `run` or `start` is called, once."""

    def run(self) -> InferenceResponse:
        """Send it, and wait for the answer on this thread; `cancel` ends that, and so does Ctrl-C."""

    def start(self, deliver: Deliver, in_thread: InThread) -> None:
        """Send it; `deliver` is called with each response, on any thread, the last with True."""

    def cancel(self, lost: str = "") -> None:
        """Give up: what waits for it ends soon. Where the server is `lost`, that is why."""


class RemoteConnection(Protocol):
    """A connection to a server, shared by its models."""

    address: Any  # `str` gives the URL
    lost: str  # why the server does not answer; empty while it does
    closed: bool
    report_waits: list[Callable[[], None]]  # called every few seconds while a request waits, without a lock

    def all_statistics(self, seconds: float) -> list[dict[str, Any]]:
        """Return the server's statistics of its models, in Triton's JSON; empty if it gives none in time."""


class RemoteBackend(BackendInstance, Protocol):
    """One version of a model on a server."""

    @property
    def link(self) -> RemoteConnection:
        """The connection."""

    def send(self, request: InferenceRequest) -> Exchange:
        """Return a request that is ready to be sent; ValueError if the server cannot take it."""
