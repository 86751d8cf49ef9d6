"""Where the files of a model to load are: on disk, or written for it from a cell or an override.

Sources from memory go to a folder of their own for each definition, never over an older one, so that
tracebacks of a version that still serves keep their lines. The folders go away with the repository.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bls_notebook.engine.errors import InvalidNameError

from .layout import config_text, shown_path, version_folders
from .names import file_override_path

__all__ = ["ModelSource", "SourceFolder"]


@dataclass(frozen=True)
class ModelSource:
    """A model to load.

    Attributes
    ----------
    name : str
    folder : Path
        The model's own folder.
    origin : str
        What is shown: ``cell``, or the folder on disk.
    config : object
        Text of config.pbtxt, JSON text, dict, or None.
    config_is_json : bool
        It came through `load_model(config=...)`, which takes JSON only.
    warnings : tuple of str
        What was found in its source.
    """

    name: str
    folder: Path
    origin: str
    config: object = None
    config_is_json: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def versions(self) -> dict[int, Path]:
        """Version folders, by number."""
        return version_folders(self.folder)

    @staticmethod
    def on_disk(name: str, folder: Path, config: object = None) -> ModelSource:
        """Return a model of a folder; `config` replaces its config.pbtxt."""
        return ModelSource(
            name,
            folder,
            shown_path(folder),
            config_text(folder) if config is None else config,
            config is not None,
        )


class SourceFolder:
    """Makes the folders of models that come from memory."""

    def __init__(self) -> None:
        self._root: Path | None = None
        self._count = 0

    def write(self, name: str, files: Mapping[str, bytes]) -> Path:
        """Write files, by their paths in the model's folder, to a new folder for a model."""
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="bls_notebook-"))
        self._count += 1
        folder = self._root / str(self._count) / name
        for path, content in files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return folder

    def from_overrides(self, name: str, files: Mapping[str, bytes]) -> Path:
        """Write the files of `load_model(files=...)`.

        Raises
        ------
        InvalidNameError
            A file that would be outside the model's folder, or that is not bytes.
        """
        if not isinstance(files, Mapping):
            raise InvalidNameError(
                f"model {name!r}: files: got {type(files).__name__}, expected a dict such as "
                "{'file:1/model.py': b'...'}"
            )
        contents = {}
        for file, data in files.items():
            path = str(file_override_path(file))
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise InvalidNameError(
                    f"model {name!r}: file override {file!r}: got {type(data).__name__}, expected bytes"
                )
            contents[path] = bytes(data)
        return self.write(name, contents)

    def discard(self, folder: Path) -> None:
        """Remove a folder that `write` made; any other is left alone."""
        if self._root is not None and self._root in folder.parents:
            shutil.rmtree(folder.parent, ignore_errors=True)
            _forget_finders(folder.parent)

    def close(self) -> None:
        """Remove everything that was written."""
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            _forget_finders(self._root)
            self._root = None


def _forget_finders(folder: Path) -> None:
    """Have the interpreter forget a folder that modules were imported from: it remembers each for ever."""
    within = f"{folder}{os.sep}"
    for path in list(sys.path_importer_cache):
        if path.startswith(within):
            sys.path_importer_cache.pop(path, None)
