"""The interface of backends, and the registry of their modules. A backend is a module with an `open_model`.

Loading calls it in Triton's order: `open_model` finds the files of one version, `auto_complete_config` fills in its
configuration, and `make_instance` is called for each instance of the completed configuration. Then the engine calls
`execute` on any thread, but never twice at a time in one instance. A model on a remote server has a `RemoteBackend`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from bls_notebook.backends.processes.error_facts import ErrorFacts
from bls_notebook.pb_utils.model_config import ModelConfig
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

_WRITTEN_PLACE = re.compile(r'^  File "(.+?)", line (\d+) in (.+)$', re.MULTILINE)


DIED = "ProcessDiedError"  # the class of the error of an instance whose process has ended


class BackendError(Exception):
    """A backend rejects a model: one line, and Triton's code of the failure."""

    def __init__(self, message: str, code: str = "Internal") -> None:
        super().__init__(message)
        self.code = code


class WorkerCode(NamedTuple):
    """The file and the function of code in another process, in place of a code object; offsets are its lines."""

    co_filename: str
    co_name: str
    co_firstlineno: int = 0

    def co_lines(self) -> Iterator[tuple[int, int, int]]:
        """Yield the begin and the end of the instructions of each line, and the line."""
        return ((line, line + 1, line) for line in count(1))


class ModelError(Exception):
    """An exception of a model in another process: its class, text and places, outermost first, as plain data.

    `folders`: the folders, and the names of files, of the model's own code. `own_words`: the text is the whole message.
    """

    def __init__(
        self,
        kind: str,
        text: str,
        places: Sequence[Sequence[Any]] = (),
        folders: Sequence[str] = (),
        own_words: bool = False,
    ) -> None:
        super().__init__(text)
        self.kind, self.text, self.places, self.folders, self.own_words = kind, text, places, folders, own_words
        self.syntax: Sequence[Any] = ()  # message, file and line of a SyntaxError
        self.chain: list[ErrorFacts] = []  # of it and its causes

    @classmethod
    def of(cls, data: Mapping[str, Any], folders: Sequence[str]) -> ModelError:
        """Return the exception that a worker has described."""
        error = cls(data["kind"], data["text"], data["places"], folders)
        error.syntax = data.get("syntax", ())
        error.chain = [ErrorFacts(**facts) for facts in data["chain"]]
        return error

    @classmethod
    def died(cls, name: str, reason: str, folders: Sequence[str] = ()) -> ModelError:
        """Return the error of an instance whose process has ended, in Triton's words and ours.

        The places are those that `faulthandler` wrote into the `reason`.
        """
        places = [(file, int(line), function) for file, line, function in _WRITTEN_PLACE.findall(reason)]
        text = f"Stub process '{name}' is not healthy: {reason}"
        return cls(DIED, text, places[::-1], folders, own_words=True)


class Modules(Protocol):
    """The private import system of one instance: its Python files as modules."""

    def load(self, name: str, file: Path) -> ModuleType:
        """Import a file as a module with this name."""

    def forget(self) -> None:
        """Drop all references to the modules."""


@dataclass(frozen=True)
class VersionFiles:
    """The files of one version of a model."""

    name: str
    version: int
    folder: Path  # folder of the version
    filename: str  # `default_model_filename` of the configuration; may be empty
    new_modules: Callable[[], Modules]  # returns a new import system, for backends that run Python files
    backend_folder: Path | None = None  # folder of a Python-based backend, whose model.py runs the model
    runtime: str = ""  # `runtime` of the configuration


class BackendInstance(Protocol):
    """One loaded instance. Its inputs are on the CPU, unless it is a Python model or has a true `takes_gpu`."""

    is_async: bool

    def execute(self, requests: list[InferenceRequest]) -> Any:
        """Return a list of responses, with None for requests answered by a sender; or None; or a coroutine of these."""

    def finalize(self) -> None:
        """Release all memory; called once, when no request is in flight."""

    def ready(self) -> bool:
        """Return whether the instance can serve."""


class BackendModel(Protocol):
    """A model version while it is loaded. Lines in its optional `warnings` are shown with the loaded model."""

    @property
    def auto_complete_config(self) -> Callable[[ModelConfig], ModelConfig] | None:
        """Completes batch size, inputs, outputs, scheduler and transaction policy of a configuration; may be None."""

    def make_instance(self, arguments: dict[str, str]) -> BackendInstance:
        """Return a new, initialized instance; `arguments` are the same as for a Python model's `initialize`."""


class OpenModel(Protocol):
    """A backend's `open_model`."""

    def __call__(self, files: VersionFiles) -> BackendModel:
        """Open one version of a model; raise BackendError if files or a package that the backend needs are missing."""


Deliver = Callable[[list[InferenceResponse], bool], None]  # the receiver empties the list, so no reference is left
InThread = Callable[[Callable[[], None]], None]


class Exchange(Protocol):
    """One request to a server and its responses."""

    def start(self, deliver: Deliver, in_thread: InThread) -> None:
        """Send the request, once; `deliver` is called with each response on any thread, and with True for the last."""

    def cancel(self, lost: str = "") -> None:
        """Cancel the request, so that waits for it end soon; `lost` says why the server cannot answer, if it cannot."""


class RemoteConnection(Protocol):
    """A connection to a server, shared by its models."""

    address: Any  # `str` gives the URL
    lost: str  # why the server does not answer; empty while it does
    closed: bool

    def all_statistics(self, seconds: float) -> list[dict[str, Any]]:
        """Return the server's statistics of its models, in Triton's JSON; empty if it gives none in time."""


class RemoteBackend(BackendInstance, Protocol):
    """One version of a model on a server."""

    @property
    def link(self) -> RemoteConnection:
        """The connection."""

    def send(self, request: InferenceRequest) -> Exchange:
        """Return a request that is ready to be sent; ValueError if the server cannot take it."""


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
