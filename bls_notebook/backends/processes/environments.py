"""The environments of workers: the kernel's own, and those that `EXECUTION_ENV_PATH` names, a folder or an archive.

As on Triton, an archive is unpacked once while it is unchanged, and `$$TRITON_MODEL_DIRECTORY` is the model's folder.
Unpacked archives are removed when Python ends. Mirrors python_backend/src/pb_env.cc and stub_launcher.cc.

A process that runs models in an environment of `repo.environment` locks a file in it, so that no other one deletes it.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import sys
import tarfile
import tempfile
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from bls_notebook.backends.protocol import BackendError

DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
ENVIRONMENT_MARKER = "bls_environment.json"  # in an environment of `repo.environment`: its requirements and packages
_USERS = "users"  # its folder with a locked file for each process that uses it
_used: dict[str, IO[str]] = {}  # the files that this process has locked, by the environment's folder
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
    variables |= {"VIRTUAL_ENV": folder, "VIRTUAL_ENV_PROMPT": f"({folder})"}
    return Environment(python, (), tuple(variables.items()))


def _folder_of(archive: Path) -> str:
    """Return the folder of an unpacked archive."""
    key = str(archive.resolve()), archive.stat().st_mtime_ns
    with _unpacking:
        if key not in _unpacked:
            folder = tempfile.mkdtemp(prefix="bls_notebook-environment-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            try:
                with open_archive(archive) as file:
                    members = file.getmembers()
                    if unsafe := next(unsafe_members(members), ""):
                        raise tarfile.TarError(f"{unsafe!r} leaves its folder, which servers since 26.06 refuse, too")
                    if hasattr(tarfile, "fully_trusted_filter"):
                        file.extraction_filter = tarfile.fully_trusted_filter
                    file.extractall(folder, members)
            except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
                shutil.rmtree(folder, ignore_errors=True)
                raise BackendError(f"EXECUTION_ENV_PATH: {archive} cannot be unpacked: {error}") from error
            _unpacked[key] = folder
        return _unpacked[key]


def open_archive(path: Path) -> tarfile.TarFile:
    """Open an archive of a form that a server reads: tar, or tar.gz."""
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return tarfile.open(path, "r:gz" if zipped else "r:")


def unsafe_members(members: Iterable[tarfile.TarInfo]) -> Iterator[str]:
    """Yield members that servers refuse: absolute paths, paths with ``..``, and paths through a symbolic link."""
    links = set[PurePosixPath]()
    for member in members:
        for path in map(PurePosixPath, [member.name] + [member.linkname] * member.islnk()):
            if path.is_absolute() or ".." in path.parts or not links.isdisjoint(path.parents):
                yield str(path)
        if member.issym():
            links.add(PurePosixPath(member.name))


def use_environment(environment: Environment) -> None:
    """Protect an environment of `repo.environment` from deletion while this process runs models in it."""
    folder = Path(environment.python).parents[1]
    if str(folder) in _used or not (folder / ENVIRONMENT_MARKER).exists():
        return
    import fcntl  # not on Windows

    with suppress(OSError):  # of another user, who alone can delete it
        (folder / _USERS).mkdir(exist_ok=True)
        name = f"{os.getpid()}-{secrets.token_hex(4)}"  # containers may share the folder
        _used[str(folder)] = file = open(folder / _USERS / name, "w", encoding="utf-8")  # noqa: SIM115
        fcntl.flock(file, fcntl.LOCK_EX)
    if not (folder / ENVIRONMENT_MARKER).exists():
        leave_environment(environment)
        raise BackendError(f"the environment {folder} has just been deleted; make it again with repo.environment")


def leave_environment(environment: Environment) -> None:
    """End the use of an environment by this process."""
    if (file := _used.pop(str(Path(environment.python).parents[1]), None)) is not None:
        with suppress(OSError):
            os.unlink(file.name)
        file.close()


def users_of(folder: Path) -> list[int]:
    """Return the processes that run models in an environment; an ended process has no lock any more."""
    import fcntl  # not on Windows

    users = []
    for path in folder.glob(f"{_USERS}/*"):
        with suppress(FileNotFoundError), path.open(encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # the file stays: its process may be about to lock it
            except BlockingIOError:
                users.append(int(path.name.partition("-")[0]))
    return sorted(users)
