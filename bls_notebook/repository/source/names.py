"""Check the names of models, versions and file overrides: none may lead out of its folder."""

from __future__ import annotations

import os
import re
import socket
from pathlib import PurePosixPath
from typing import Any

from bls_notebook.engine.errors import BLSError, InvalidNameError
from bls_notebook.records.environments import EnvironmentRecord
from bls_notebook.records.visible_text import encodable, visible

_FORBIDDEN = re.compile(r'[/\\:*?"<>|\x00-\x1f\x7f]')
_SHELL = re.compile(r"""[;|&$`<>()\[\]{}\\"'*?~#!]""")  # python_backend/src/pb_utils.h
_NO_STUB = "Invalid argument: Invalid stub name: contains invalid characters"


def check_model_name(name: object) -> str:
    """Return a valid model name, or raise InvalidNameError: it must be a plain folder name."""
    if not isinstance(name, str):
        raise InvalidNameError(
            f"model name: got {name!r} of type {type(name).__name__}, expected text such as 'add_sub'"
        )
    if problem := name_problem(name):
        forbidden = _FORBIDDEN.search(name)
        shown = name if len(name) <= 60 else name[:57] + "..."
        raise InvalidNameError(
            f"model name {shown!r} cannot be used: {problem}. A model's name is the name of its "
            "folder; use letters, digits, '_', '-' and '.'",
            _NO_STUB if forbidden and _SHELL.match(forbidden[0]) else "",
        )
    return name


def name_problem(name: str) -> str:
    """Return why text cannot be a model's name; empty if it can."""
    forbidden = _FORBIDDEN.search(name) or next((c for c in name if visible(c) != c), None)
    if forbidden:
        return f"it contains {forbidden[0]!r}"
    plain = name and name == name.strip() and not name.startswith(".") and len(name.encode()) <= 255
    return "" if plain else "it is empty, hidden, too long or has spaces around it"


def check_launchable(name: str, what: str) -> None:
    """Raise InvalidNameError if a server's Python backend cannot start a process of this name; `what` is for the error.

    Current servers refuse to load the model. Older servers start the process with a shell and then hang.
    """
    special = _SHELL.search(name)
    if special:
        raise InvalidNameError(
            f"{what} cannot be used by a model of the Python backend: it contains {special[0]!r}, which has a meaning "
            "in a shell, so the server refuses it; use letters, digits, '_', '-' and '.'",
            _NO_STUB,
        )


ISOLATIONS = ("kernel", "process")


def check_isolation(isolation: object) -> str:
    """Return where instances run, empty for None, or raise BLSError."""
    if isolation is not None and isolation not in ISOLATIONS:
        raise BLSError(f"isolation: got {isolation!r}, expected one of {', '.join(map(repr, ISOLATIONS))}")
    if isolation == "process" and not hasattr(socket, "SCM_RIGHTS"):
        raise BLSError("isolation: got 'process', which needs Linux or macOS; use isolation='kernel'")
    return "" if isolation is None else str(isolation)


def check_home(isolation: object, environment: object) -> dict[str, Any]:
    """Return the fields of a `ModelSource` that say where instances run; empty if nothing is given."""
    if environment is None:
        name = check_isolation(isolation)
        return {} if not name else {"isolation": name, **({"environment": ""} if name == "kernel" else {})}
    if isolation == "kernel":
        raise BLSError("isolation: got 'kernel', but an environment needs processes; omit one of them")
    return {"isolation": check_isolation("process"), "environment": _environment_folder(environment)}


def _environment_folder(environment: object) -> str:
    """Return the folder of an environment: of a record, or a path."""
    path = environment.path if isinstance(environment, EnvironmentRecord) else environment
    if not isinstance(path, (str, os.PathLike)) or not os.path.exists(path):
        raise BLSError(
            f"environment: got {environment!r}, expected the result of repo.environment(...), or the path of a folder "
            "or archive that exists"
        )
    return os.path.abspath(path)


def check_version(version: object) -> int:
    """Return a valid version number, or raise InvalidNameError: it must be an integer above 0."""
    if not isinstance(version, int) or isinstance(version, bool) or not 0 < version < 2**63:
        raise InvalidNameError(f"model version: got {version!r}, expected a whole number from 1, such as version=1")
    return version


def file_override_path(name: str) -> PurePosixPath:
    """Return the path of a file of `load_model(files=...)`, relative to the model's folder and never outside of it.

    Its name is ``file:<version>/<path>``, or equivalently ``file:/<version>/<path>``, as in Triton.
    """
    plain = name[5:] if isinstance(name, str) and name.startswith("file:") else ""
    path = PurePosixPath(plain.lstrip("/"))
    parts = path.parts
    if (
        len(parts) < 2
        or any(p in ("..", ".") or _FORBIDDEN.search(p) or len(p.encode("utf-8", "replace")) > 255 for p in parts)
        or "\\" in plain
        or encodable(plain) != plain
    ):
        shown = repr(name) if len(repr(name)) <= 80 else f"{repr(name)[:80]}..."
        raise InvalidNameError(
            f"file override {shown} cannot be used: expected 'file:<version>/<file name>' inside the "
            "model's folder, such as 'file:1/model.py'"
        )
    return path


def check_config_name(name: str) -> str:
    """Return the name of custom configurations, such as h100; InvalidNameError if it cannot be the name of a file."""
    if not isinstance(name, str) or re.search(r"[\s/\\\0]", name):
        raise InvalidNameError(f"model_config_name: got {name!r}, expected a name without spaces, such as h100")
    return name
