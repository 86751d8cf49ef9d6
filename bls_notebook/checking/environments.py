"""Find mistakes in ``EXECUTION_ENV_PATH``, the packed environment in which a server runs a Python model."""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePosixPath

from bls_notebook.repository.config import environment_parameter

from .checked_model import CheckedModel
from .records import Finding

IMAGE_PYTHON = "3.12"
"""Python version of the stub in NVIDIA's images, from release 24.11 on."""
_OLDER_PYTHON = "3.10"  # in images before
_STUB = "triton_python_backend_stub"  # in the model's folder: a stub for another Python version
_LIBRARY = re.compile(r"(?:^|/)lib/python(3\.\d+)(?:/|$)")
_MOST_FILES = 5_000  # files of an archive; the packages of an environment come early


def environment_findings(model: CheckedModel, release: str = "") -> Iterator[Finding]:
    """Yield why a server cannot use the environment in the model's folder; absolute paths are unknown here."""
    path, file = environment_of(model)
    if not path or path.startswith("/") or model.place is not None:
        return
    where, python = "parameters.value.string_value", ""
    if path == file or ".." in PurePosixPath(file).parts:
        yield model.in_config("environment-outside", where, value=path, what=file)
    elif not (model.folder / file).exists():
        yield model.in_config("environment-missing", where, value=path, what=file)
    elif not (model.folder / _STUB).exists():
        python = _python_of(model.folder / file)
    image = _OLDER_PYTHON if "" < release < "24.11" else IMAGE_PYTHON
    if python not in ("", image):
        yield model.in_config("environment-python", where, value=path, what=file, python=python, image=image)


def _python_of(environment: Path) -> str:
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
        return _archived(environment, environment.stat().st_mtime_ns)
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError):
        return []


@lru_cache(maxsize=4)  # several checks read the same archive, which takes long
def _archived(archive: Path, modified_ns: int) -> Sequence[str]:
    with tarfile.open(archive) as file:
        return [member.name for member in islice(file, _MOST_FILES)]
