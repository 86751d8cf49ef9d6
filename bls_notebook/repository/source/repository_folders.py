"""Finds the model repository that a folder is, or holds: other people's lie anywhere in their projects."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bls_notebook.engine.errors import BLSError
from bls_notebook.records.quantities import listed

from .layout import folder_path, model_names, shown_path, version_folders

_DEEPEST = 7
_MOST_FOLDERS = 20_000  # that are looked into
_LISTED = 12
_PASSED_OVER = frozenset({"node_modules", "venv", "site-packages", "__pycache__", "build", "dist", "test", "tests"})


def repository_folder(folder: str | Path, command: str = "%tritonrepo try") -> Path:
    """Return the folder whose sub-folders are models: the one given, or the only one that it holds.

    `command` is what it is for, which errors begin with, and tell to give another folder.
    """
    what = command.rpartition(" ")[2]
    given = folder_path(folder, what, "give a folder with a model repository in it")
    if is_repository(given):
        return given
    found = list(repositories_below(given))
    if len(found) == 1:
        return found[0]
    if found:
        shown = listed(map(shown_path, found), _LISTED)
        raise BLSError(
            f"{what}: {shown_path(given)} holds {len(found)} model repositories: {shown}; name one of "
            f"them, such as `{command} {shown_path(found[0])}`"
        )
    if is_model(given):
        raise BLSError(
            f"{what}: {shown_path(given)} is a model, expected the folder that it lies in; "
            f"`{command} {shown_path(given.parent)}`"
        )
    inside = sorted(each.name for each in given.iterdir())[:_LISTED]
    raise BLSError(
        f"{what}: {shown_path(given)} is no model repository and holds none: it has "
        f"{', '.join(inside) or 'nothing in it'}; expected folders of models, each with config.pbtxt "
        "or 1/model.py"
    )


def is_repository(folder: Path) -> bool:
    return any(is_model(folder / name) for name in model_names([folder]))


def is_model(folder: Path) -> bool:
    """Whether a folder has a configuration, or a version with a model's file in it."""
    if config_files(folder):
        return True
    return any(any(version.glob("model.*")) for version in version_folders(folder).values())


def config_files(folder: Path) -> list[Path]:
    """Return what may be a model's configuration, the best first: config.pbtxt, its variants, templates."""
    try:
        files = [f for f in sorted(folder.iterdir()) if ".pbtxt" in f.name and f.is_file()]
        more = sorted((folder / "configs").glob("*.pbtxt"))
    except OSError:
        return []
    files.sort(key=lambda f: (f.name != "config.pbtxt", not f.name.startswith("config"), f.name))
    return files + more


def repositories_below(folder: Path) -> Iterator[Path]:
    """The repositories below a folder, from the top; none inside another."""
    seen = 0
    for within, folders, _ in os.walk(folder):
        here = Path(within)
        seen += 1
        if seen > _MOST_FOLDERS:
            return
        if here != folder and is_repository(here):
            folders.clear()
            yield here
            continue
        deep = len(here.relative_to(folder).parts) >= _DEEPEST
        kept = () if deep else (f for f in sorted(folders) if not f.startswith(".") and f not in _PASSED_OVER)
        folders[:] = list(kept)
