"""Find mistakes in ``EXECUTION_ENV_PATH``, the packed environment in which a server runs a Python model."""

from __future__ import annotations

import contextlib
import os
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePosixPath

from bls_notebook.backends import ENVIRONMENT_MARKER, open_archive, unsafe_members
from bls_notebook.records import size
from bls_notebook.repository.config import environment_parameter

from .checked_model import CheckedModel
from .records import Finding

IMAGE_PYTHON = "3.12"
"""Python version of the stub in NVIDIA's images, from release 24.11 on."""
_OLDER_PYTHON = "3.10"  # in images before
_STUB = "triton_python_backend_stub"  # in the model's folder: a stub for another Python version
_LIBRARY = re.compile(r"(?:^|/)lib/python(3\.\d+)(?:/|$)")
_UNREADABLE = (tarfile.TarError, OSError, EOFError, zlib.error, ValueError)
_LARGE = 1 << 30  # bytes of an unpacked archive that are worth a note
_MOST_FILES = 5_000  # files of an archive; the packages of an environment come early


def environment_findings(model: CheckedModel, release: str = "") -> Iterator[Finding]:
    """Yield why a server cannot use a model's environment; other absolute paths than those of ours are unknown here."""
    path, file = environment_of(model)
    packed = model.folder / file
    is_ours = path.startswith("/") and (packed / ENVIRONMENT_MARKER).exists()
    if not path or (path.startswith("/") and not is_ours) or (model.place is not None and not is_ours):
        return
    where, python = "parameters.value.string_value", ""
    if not is_ours and (path == file or ".." in PurePosixPath(file).parts):
        yield model.in_config("environment-outside", where, value=path, what=file)
    elif not packed.exists():
        yield model.in_config("environment-missing", where, value=path, what=file)
    else:
        if problem := _refusal(packed):
            yield model.in_config("environment-refused", where, value=path, what=file, problem=problem)
        if (bytes := _unpacked_bytes(packed)) > _LARGE:
            yield model.in_config("environment-large", where, value=path, what=file, size=size(bytes))
        if _lacks_library(packed):
            yield model.in_config("environment-library", where, value=path, what=file)
        python = "" if (model.folder / _STUB).exists() else python_of(packed)
    image = _OLDER_PYTHON if "" < release < "24.11" else IMAGE_PYTHON
    if python not in ("", image):
        yield model.in_config("environment-python", where, value=path, what=file, python=python, image=image)


def _refusal(environment: Path) -> str:
    """Return why a server refuses a folder or an archive; empty if it does not."""
    if environment.is_dir():
        return "" if (environment / "bin" / "activate").exists() else "has no file bin/activate"
    try:
        members, whole = _archived(environment, environment.stat().st_mtime_ns)
    except _UNREADABLE:
        return "is neither a tar nor a tar.gz archive"
    if unsafe := next(unsafe_members(members), ""):
        return f"has {unsafe!r}, which leaves the folder: releases since 26.06 refuse that, older ones write the file"
    activates = any(PurePosixPath(member.name) == PurePosixPath("bin/activate") for member in members)
    return "" if activates or not whole else "has no file bin/activate at its top"


def _lacks_library(environment: Path) -> bool:
    """Return whether a conda environment has no ``libstdc++``."""
    names = files_in(environment, "conda-meta/history", "lib/libstdc++.so*")
    is_conda = any("conda-meta/" in name for name in names)
    return is_conda and len(names) < _MOST_FILES and not any("libstdc++.so" in name for name in names)


def _unpacked_bytes(environment: Path) -> int:
    """Return the size of an unpacked archive, of one below 4 GiB exactly, without unpacking it; 0 for a folder."""
    if environment.is_dir():
        return 0
    with contextlib.suppress(OSError), environment.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            return environment.stat().st_size
        file.seek(-4, os.SEEK_END)  # the last field of gzip: the length, modulo 4 GiB
        packed, length = environment.stat().st_size, int.from_bytes(file.read(4), "little")
        return length if 2 * length > packed else length + (1 << 32)
    return 0


def python_of(environment: Path) -> str:
    """Return the Python version of an archive or folder; empty if it is unknown."""
    names = files_in(environment, "lib/python3.*")
    return next((match[1] for name in names if (match := _LIBRARY.search(name))), "")


def environment_of(model: CheckedModel) -> tuple[str, str]:
    """Return the path of a model's environment as configured, and relative to the model's folder; or empty."""
    path = environment_parameter(model.given)
    return path, path.removeprefix("$$TRITON_MODEL_DIRECTORY/")


def files_in(environment: Path, *patterns: str) -> Sequence[str]:
    """Return the paths in a folder that match the patterns, or the first ones in an archive; empty if unreadable."""
    try:
        if environment.is_dir():
            found = (path for pattern in patterns for path in environment.glob(pattern))
            return [path.relative_to(environment).as_posix() for path in found]
        return [member.name for member in _archived(environment, environment.stat().st_mtime_ns)[0]]
    except _UNREADABLE:
        return []


@lru_cache(maxsize=4)  # several checks read the same archive, which takes long
def _archived(archive: Path, modified_ns: int) -> tuple[Sequence[tarfile.TarInfo], bool]:
    """Return the first members of an archive, and whether these are all."""
    with open_archive(archive) as file:
        members = list(islice(file, _MOST_FILES))
        return members, len(members) < _MOST_FILES
