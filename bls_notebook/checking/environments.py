"""Find mistakes in ``EXECUTION_ENV_PATH``, the packed environment in which a server runs a Python model."""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

from .checked_model import CheckedModel
from .records import Finding

IMAGE_PYTHON = "3.12"
"""Python version of the stub in NVIDIA's images, from release 24.11 on."""
_OLDER_PYTHON = "3.10"  # in images before
_STUB = "triton_python_backend_stub"  # in the model's folder: a stub for another Python version
_LIBRARY = re.compile(r"(?:^|/)lib/python(3\.\d+)(?:/|$)")
MOST_FILES = 5_000  # files of an archive; the packages of an environment come early


def environment_findings(model: CheckedModel, release: str = "") -> Iterator[Finding]:
    """Yield why a server cannot use the environment in the model's folder; absolute paths are unknown here."""
    parameters = model.given.parameters
    path = parameters["EXECUTION_ENV_PATH"].string_value if "EXECUTION_ENV_PATH" in parameters else ""
    file = path.removeprefix("$$TRITON_MODEL_DIRECTORY/")
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
    try:
        if environment.is_dir():
            names = [f"lib/{folder.name}" for folder in (environment / "lib").glob("python3.*")]
        else:
            with tarfile.open(environment) as archive:
                names = [member.name for member in islice(archive, MOST_FILES)]
    except (tarfile.TarError, OSError, EOFError, zlib.error):
        return ""
    return next((match[1] for name in names if (match := _LIBRARY.search(name))), "")
