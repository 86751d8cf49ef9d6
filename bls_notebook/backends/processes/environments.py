"""The environments of workers: the kernel's own, and those that `EXECUTION_ENV_PATH` names, a folder or an archive.

As on Triton, an archive is unpacked once while it is unchanged, and `$$TRITON_MODEL_DIRECTORY` is the model's folder.
Unpacked archives are removed when Python ends. Mirrors python_backend/src/pb_env.cc and stub_launcher.cc.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tarfile
import tempfile
import threading
import zlib
from dataclasses import dataclass
from pathlib import Path

from bls_notebook.backends.protocol import BackendError

DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
_unpacked: dict[tuple[str, int], str] = {}  # the folders of archives, by path and time of the last change
_unpacking = threading.Lock()


@dataclass(frozen=True)
class Environment:
    """The interpreter of a worker, its `sys.path` (empty: its own), and variables in place of the kernel's."""

    python: str
    path: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


def own_environment() -> Environment:
    """Return the kernel's environment, without the folder of the notebook, which does not exist on a server."""
    here = {"", os.getcwd()}
    return Environment(sys.executable, tuple(entry for entry in sys.path if entry not in here))


def environment_path(text: str, folder: Path) -> Path | None:
    """Return the path of an environment, by the parameter's text and the model's folder; None without the parameter."""
    return Path(text.replace(DIRECTORY, str(folder), 1)) if text else None


def environment_at(path: Path) -> Environment:
    """Return the environment in a folder or an archive; raise BackendError if a server cannot use it either."""
    if not path.exists():
        raise BackendError(f"Failed to get the canonical path for {path}.")
    folder = str(path.resolve()) if path.is_dir() else _folder_of(path)
    activate = os.path.join(folder, "bin", "activate")
    if not os.path.exists(activate):
        raise BackendError(
            f"Path {activate} does not exist. The Python environment should contain an 'activate' script."
        )
    python = os.path.join(folder, "bin", "python")
    if not os.access(python, os.X_OK):
        raise BackendError(
            f"EXECUTION_ENV_PATH: {python} cannot be run; make the environment on this machine, or with conda-pack"
        )
    searched = {"PATH": os.path.join(folder, "bin"), "LD_LIBRARY_PATH": os.path.join(folder, "lib")}
    variables = {name: f"{new}:{os.environ.get(name, '')}".rstrip(":") for name, new in searched.items()}
    return Environment(python, (), tuple(variables.items()))


def _folder_of(archive: Path) -> str:
    """Return the folder of an unpacked archive."""
    key = str(archive.resolve()), archive.stat().st_mtime_ns
    with _unpacking:
        if key not in _unpacked:
            folder = tempfile.mkdtemp(prefix="bls_notebook-environment-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            try:
                with tarfile.open(archive) as file:
                    if hasattr(tarfile, "tar_filter"):  # of members that leave the folder, as servers since 26.06
                        file.extraction_filter = tarfile.tar_filter
                    file.extractall(folder)
            except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
                shutil.rmtree(folder, ignore_errors=True)
                raise BackendError(f"EXECUTION_ENV_PATH: {archive} cannot be unpacked: {error}") from error
            _unpacked[key] = folder
        return _unpacked[key]
