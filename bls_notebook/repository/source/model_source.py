"""The source of a model to load: a folder, a cell, file overrides, a stub or a remote server.

Sources from memory are written to a new folder for each definition. The folder of an earlier definition is never
overwritten, so tracebacks of a version in service show the right lines. The repository removes these folders when it
closes.
"""

from __future__ import annotations

import errno
import linecache
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, Protocol

from bls_notebook.engine.errors import InvalidNameError, ModelLoadError, RepositoryClosedError
from bls_notebook.engine.exception_text import labels
from bls_notebook.repository.config import ModelConfigMessage, parse_config, parse_json

from .model_folders import DEEPEST, version_folders
from .names import file_override_path
from .namespaces import identified, model_of
from .replaced_config import ReplacedConfig

if TYPE_CHECKING:
    from bls_notebook.backends.processes.backend import Prelude
    from bls_notebook.backends.protocol import BackendInstance, OpenModel, RemoteBackend
    from bls_notebook.repository.modules.module_home import SourcePlace

Values = Literal["zeros", "random"]
VALUES: tuple[Values, ...] = ("zeros", "random")


class RemoteModel(Protocol):
    """A model on a remote server, as its connection describes it."""

    @property
    def address(self) -> str:
        """The server's URL."""

    def is_gone(self) -> bool:
        """Return whether the server currently does not answer."""

    def described(self, name: str) -> AbstractContextManager[RemoteVersions]:
        """Ask the server for the model's configuration and versions; `name` is the model's local name.

        Raises
        ------
        ModelLoadError
        """


@dataclass(frozen=True)
class RemoteVersions:
    """A server's description of a model: its configuration and its ready versions.

    ``open`` maps each version to a function that returns the version's backend. The function's arguments are whether
    the model is decoupled, and the names of its outputs.
    """

    config: ModelConfigMessage
    open: Mapping[int, Callable[[bool, tuple[str, ...]], RemoteBackend]]


@dataclass(frozen=True)
class Stub:
    """Settings of a stub: the source of its answers, and its execution time."""

    reason: str = ""  # why the model is stubbed, one line
    values: Values = "zeros"
    seed: int = 0  # of random values: the same request gets the same answer
    seconds: float = 0.0  # duration of each `execute`
    responses: int = 3  # per request, if the model is decoupled
    recorded: Mapping[str, Any] = field(default_factory=dict)  # fixed values of outputs, by name
    gpu: int | None = None  # device of numeric outputs, as with a TensorRT engine
    # The model's real backend, whose `auto_complete_config` completes the configuration if it succeeds.
    asks: OpenModel | None = None
    # Creates an instance from the arguments of `initialize`; None: responses are made up.
    make: Callable[[Mapping[str, str]], BackendInstance] | None = None


@dataclass(frozen=True)
class ModelSource:
    """A model to load."""

    name: str
    folder: Path  # the model's folder
    origin: str  # for displays: "cell", or the folder on disk
    # Text of config.pbtxt, JSON text, a dict, None, or the ConfigError of an unreadable file.
    config: object = None
    config_is_json: bool = False  # passed to `load_model(config=...)`, which accepts JSON only
    warnings: tuple[str, ...] = ()  # about the source
    place: SourcePlace | None = None  # of a cell
    stub: Stub | None = None  # replaces the model's backend
    remote: RemoteModel | None = None  # the model on the server that runs it
    replaced: ReplacedConfig | None = None  # the configuration that a cell kept
    isolation: str = ""  # "process" or "kernel"; empty for the repository's
    prelude: Callable[[], Prelude] | None = field(default=None, compare=False)  # of a model that is tried, in a process
    environment: str = ""  # a folder or archive, in place of the configuration's EXECUTION_ENV_PATH
    namespace: str = ""  # of a model in a folder, if there are namespaces
    steps: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # namespaces and keys of its steps

    @property
    def model(self) -> str:
        """The model's name; `name` is its key."""
        return model_of(self.name)

    @property
    def identifier(self) -> str:
        """The model's name in Triton's messages."""
        return identified(self.namespace, self.model)

    @property
    def versions(self) -> dict[int, Path]:
        return version_folders(self.folder)

    def parsed_config(self) -> ModelConfigMessage:
        """Parse the model's configuration, without completing it."""
        config: Any = self.config
        parse = parse_json if self.config_is_json and isinstance(config, (str, dict)) else parse_config
        parsed = parse(config, model=self.model)
        if self.environment:
            parsed.parameters["EXECUTION_ENV_PATH"].string_value = self.environment
        return parsed


class SourceFolder:
    """Creates the temporary folders of models that come from memory.

    Guarantees: each folder is new, also for concurrent calls; a failed write leaves no folder behind; `close` removes
    all folders, and none is created afterwards.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._root: Path | None = None
        self._count = 0
        self._of_others: set[Path] = set()  # made by `new`
        self._closed = False

    def write(self, name: str, files: Mapping[str, bytes]) -> Path:
        """Write files to a new folder for a model and return it; keys are paths relative to it."""
        new_folder: Path | None = None
        path = ""
        try:
            new_folder = self._new()
            for path, content in files.items():
                file = new_folder / name / path
                if len(file.parts) > DEEPEST:
                    raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("xb") as opened:
                    opened.write(content)
            if self._closed:  # by another thread
                raise _closed()
        except BaseException as error:
            if new_folder is not None:
                _remove(new_folder)
                if self._closed:
                    _remove(new_folder.parent)
            if not isinstance(error, (OSError, ValueError)):
                raise
            file_or_folder = f"its file {path if len(path) <= 80 else path[:80] + '…'!r}" if path else "its folder"
            why = getattr(error, "strerror", None) or str(error)
            raise ModelLoadError(f"model {name!r}: {file_or_folder} cannot be written: {why}", name) from error
        return new_folder / name

    def new(self) -> Path:
        """Return a new folder for models that others write; it stays until `close`."""
        folder = self._new()
        self._of_others.add(folder)
        return folder

    def _new(self) -> Path:
        with self._lock:
            if self._closed:
                raise _closed()
            if self._root is None:
                self._root = Path(tempfile.mkdtemp(prefix="bls_notebook-"))
            self._count += 1
            folder = self._root / str(self._count)
        folder.mkdir()
        return folder

    def from_overrides(self, name: str, files: Mapping[str, bytes]) -> Path:
        """Write the files of `load_model(files=...)` to a new folder; reject paths outside of it and duplicates."""
        if not isinstance(files, Mapping):
            raise InvalidNameError(
                f"model {name!r}: files: got {type(files).__name__}, expected a dict such as "
                "{'file:1/model.py': b'...'}"
            )
        contents: dict[PurePosixPath, bytes] = {}
        for file, data in files.items():
            path = file_override_path(file)
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise InvalidNameError(
                    f"model {name!r}: file override {file!r}: got {type(data).__name__}, expected bytes"
                )
            if path in contents:
                raise InvalidNameError(f"model {name!r}: two file overrides for {str(path)!r}; keep one of them")
            contents[path] = bytes(data)
        return self.write(name, {str(path): data for path, data in contents.items()})

    def discard(self, folder: Path) -> None:
        """Remove a folder that `write` created; ignore other folders."""
        if self._root is not None and self._root in folder.parents and folder.parent not in self._of_others:
            _remove(folder.parent)

    def close(self) -> None:
        """Remove all folders; later calls of `write` and `new` raise RepositoryClosedError."""
        with self._lock:
            self._closed = True
            root, self._root = self._root, None
        if root is not None:
            _remove(root)
            _forget(f"{root}{os.sep}", labels)


def _closed() -> RepositoryClosedError:
    return RepositoryClosedError("the repository is closed; make a new one: ModelRepository(...)")


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    # Python's caches would keep entries of folders that modules were imported from, and of files' lines.
    within = f"{folder}{os.sep}"
    _forget(within, sys.path_importer_cache)
    _forget(within, linecache.cache)


def _forget(within: str, remembered: dict[str, Any]) -> None:
    for path in list(remembered):
        if path.startswith(within):
            remembered.pop(path, None)
