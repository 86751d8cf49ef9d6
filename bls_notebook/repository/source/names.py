"""Check the names of models, versions and files: none may lead out of its folder."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from bls_notebook.engine.errors import InvalidNameError
from bls_notebook.records.visible_text import encodable

_FORBIDDEN = re.compile(r'[/\\:*?"<>|\x00-\x1f\x7f]')
_SHELL = re.compile(r"""[;|&$`<>()\[\]{}\\"'*?~#!]""")  # python_backend/src/pb_utils.h
_NO_STUB = "Invalid argument: Invalid stub name: contains invalid characters"


def check_model_name(name: object) -> str:
    """Return a model's name, if it may be one: a plain folder name that cannot lead to another folder."""
    if not isinstance(name, str):
        raise InvalidNameError(
            f"model name: got {name!r} of type {type(name).__name__}, expected text such as 'add_sub'"
        )
    found = _FORBIDDEN.search(name)
    plain = name and encodable(name) == name.strip() and not name.startswith(".") and len(name.encode()) <= 255
    if found or not plain:
        shown = name if len(name) <= 60 else name[:57] + "..."
        why = f"it has {found[0]!r} in it" if found else "it is empty, hidden, too long or has spaces around"
        raise InvalidNameError(
            f"model name {shown!r} cannot be used: {why}. A model's name is the name of its "
            "folder; use letters, digits, '_', '-' and '.'",
            _NO_STUB if found and _SHELL.match(found[0]) else "",
        )
    return name


def check_launchable(name: str, what: str) -> None:
    """Raise for a name (described as `what`) with which a server's Python backend cannot start a process.

    Current servers refuse the load; older ones, which start it by a shell, never answer.
    """
    found = _SHELL.search(name)
    if found:
        raise InvalidNameError(
            f"{what} cannot be used by a model of the Python backend: it has {found[0]!r} in it, which means "
            "something to a shell, and the server refuses it; use letters, digits, '_', '-' and '.'",
            _NO_STUB,
        )


def check_version(version: object) -> int:
    """Return a model's version number, if it may be one: a whole number above 0."""
    if not isinstance(version, int) or isinstance(version, bool) or not 0 < version < 2**63:
        raise InvalidNameError(f"model version: got {version!r}, expected a whole number from 1, such as version=1")
    return version


def file_override_path(name: str) -> PurePosixPath:
    """Return where a file of `load_model(files=...)` goes, relative to the model's folder, never out of it.

    It is named ``file:<version>/<path>``, as in Triton, which takes ``file:/<version>/<path>`` for the same.
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
