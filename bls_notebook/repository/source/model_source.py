"""The source of a model to load: files on disk, a cell, or files given by a caller; and where the user wrote it.

Sources from memory are written to a new folder for each definition, never over an older one, so tracebacks
of a version that still serves keep their lines. The repository removes these folders when it closes.
"""

from __future__ import annotations

import linecache
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol

from bls_notebook.engine.errors import InvalidNameError, ModelLoadError, RepositoryClosedError
from bls_notebook.engine.exception_text import labels
from bls_notebook.repository.config import ModelConfigMessage, parse_config, parse_json

from .layout import version_folders
from .names import file_override_path

if TYPE_CHECKING:
    from bls_notebook.backends.protocol import RemoteBackend
    from bls_notebook.repository.substitution.made_up_responses import Stub


class RemoteModel(Protocol):
    """A model on a remote server, as its connection describes it."""

    @property
    def address(self) -> str:
        """The server's URL."""

    def is_gone(self) -> bool:
        """Whether the server does not answer now."""

    def described(self, name: str) -> AbstractContextManager[RemoteVersions]:
        """Ask the server for the model's configuration and versions; `name` is its name here.

        Raises
        ------
        ModelLoadError
        """


@dataclass(frozen=True)
class RemoteVersions:
    """What a server says of a model.

    ``open`` has a function for each version that is ready, which returns the version's backend. It takes
    whether the model is decoupled, and the names of its outputs.
    """

    config: ModelConfigMessage
    open: Mapping[int, Callable[[bool, tuple[str, ...]], RemoteBackend]]


@dataclass(frozen=True)
class SourcePlace:
    """Where source was written."""

    file: str  # what debuggers and tracebacks call the file; breakpoints are set in it
    label: str  # what it is called where a person reads it
    line: int = 1  # of that file, where the source begins
    text: str | None = None  # what is run in place of the source, if anything is

    def numbered(self, source: str) -> str:
        """Return the source with its lines numbered as they are in the file."""
        return "\n" * (self.line - 1) + (source if self.text is None else self.text)


@dataclass(frozen=True)
class ModelSource:
    """A model to load."""

    name: str
    folder: Path  # the model's own
    origin: str  # what is shown: "cell", or the folder on disk
    # Text of config.pbtxt, JSON text, dict, None, or the ConfigError that says why it cannot be read.
    config: object = None
    config_is_json: bool = False  # it came through `load_model(config=...)`, which takes JSON only
    warnings: tuple[str, ...] = ()  # what was found in its source
    place: SourcePlace | None = None  # of a cell: where it was written
    stub: Stub | None = None  # what answers instead of its own backend
    remote: RemoteModel | None = None  # the server that runs it

    @property
    def versions(self) -> dict[int, Path]:
        return version_folders(self.folder)

    def parsed_config(self) -> ModelConfigMessage:
        """Return its configuration, as it is given."""
        given: Any = self.config
        read = parse_json if self.config_is_json and isinstance(given, (str, dict)) else parse_config
        return read(given, model=self.name)


class SourceFolder:
    """Makes the folders of models that come from memory.

    Guarantees: folders made side by side never meet; one that cannot be written whole leaves nothing behind;
    after `close` there are none.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._root: Path | None = None
        self._count = 0
        self._closed = False

    def write(self, name: str, files: Mapping[str, bytes]) -> Path:
        """Write files, by their paths in the model's folder, to a new folder for a model."""
        made: Path | None = None
        path = ""
        try:
            made = self.new()
            for path, content in files.items():
                file = made / name / path
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("xb") as opened:
                    opened.write(content)
            if self._closed:  # meanwhile
                raise _closed()
        except BaseException as error:
            if made is not None:
                _remove(made)
                if self._closed:
                    _remove(made.parent)
            if not isinstance(error, (OSError, ValueError)):
                raise
            what = f"its file {path if len(path) <= 80 else path[:80] + '…'!r}" if path else "its folder"
            why = getattr(error, "strerror", None) or str(error)
            raise ModelLoadError(f"model {name!r}: {what} cannot be written: {why}", name) from error
        return made / name

    def new(self) -> Path:
        """Return a new empty folder."""
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
        """Write the files of `load_model(files=...)`, none outside the folder or where another is."""
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
                raise InvalidNameError(f"model {name!r}: two file overrides for {str(path)!r}; give one")
            contents[path] = bytes(data)
        return self.write(name, {str(path): data for path, data in contents.items()})

    def discard(self, folder: Path) -> None:
        """Remove a folder that `write` made; any other is left alone."""
        if self._root is not None and self._root in folder.parents:
            _remove(folder.parent)

    def close(self) -> None:
        """Remove everything that was written; nothing is any more."""
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
    # The interpreter remembers every folder that modules were imported from for ever, and the lines of files.
    within = f"{folder}{os.sep}"
    _forget(within, sys.path_importer_cache)
    _forget(within, linecache.cache)


def _forget(within: str, remembered: dict[str, Any]) -> None:
    for path in list(remembered):
        if path.startswith(within):
            remembered.pop(path, None)
