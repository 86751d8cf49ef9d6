"""Find model repositories: the given folder, or the repositories below it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bls_notebook.engine.errors import BLSError
from bls_notebook.records.units import listed

from .layout import folder_path, model_names, shown_path, version_folders

_DEEPEST = 7
_MOST_FOLDERS = 20_000  # that are looked into
_LISTED = 12
_PASSED_OVER = frozenset({"node_modules", "venv", "site-packages", "__pycache__", "build", "dist", "test", "tests"})


def repository_folder(folder: str | Path, command: str = "%tritonrepo try") -> Path:
    """Return the model repository: the given folder, or the only repository below it.

    `command` is the command given the folder: errors begin with its last word and suggest a corrected command.
    """
    what = command.rpartition(" ")[2]
    given = folder_path(folder, what, "give a folder with a model repository in it")
    found = [given] if is_repository(given) else list(repositories_below(given))
    if len(found) == 1:
        return found[0]
    if found:
        why = f"holds {len(found)} model repositories: {listed(map(shown_path, found), _LISTED)}; name one of them"
        why += f", such as `{command} {shown_path(found[0])}`"
    elif is_model(given):
        why = f"is a model, expected the folder that it lies in; `{command} {shown_path(given.parent)}`"
    else:
        inside = ", ".join(sorted(each.name for each in given.iterdir())[:_LISTED]) or "nothing in it"
        why = f"is no model repository and holds none: it has {inside}; expected folders of models, each with "
        why += "config.pbtxt or 1/model.py"
    raise BLSError(f"{what}: {shown_path(given)} {why}")


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
    """Yield the repositories below a folder, from the top; none inside another."""
    for within, folders, _ in islice(os.walk(folder), _MOST_FOLDERS):
        here = Path(within)
        if here != folder and is_repository(here):
            folders.clear()
            yield here
            continue
        deep = len(here.relative_to(folder).parts) >= _DEEPEST
        folders[:] = [f for f in sorted(folders) if not (deep or f.startswith(".") or f in _PASSED_OVER)]
