"""Find model repositories in a project: the folder itself or one below it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bls_notebook.engine import BLSError
from bls_notebook.records import listed, remedy
from bls_notebook.repository.source import folder_path, model_names, shown_path, version_folders, walk

_DEEPEST = 7
_MOST_FOLDERS = 20_000  # folders that are searched at most
_LISTED = 12
_MOST_PROJECT, _MOST_FILES = 2000, 200  # folders of a project that are searched; files that are read
IGNORED = frozenset({"node_modules", "venv", "site-packages", "__pycache__", "build", "dist", "test", "tests"})


def repository_folder(folder: str | Path, verb: str = "try") -> Path:
    """Return the model repository: the given folder, or the only repository below it.

    Errors begin with `verb`, an action, and suggest a corrected command.
    """
    root = folder_path(folder, verb, "give a folder that contains a model repository")
    repositories, command = repositories_in(root), f"{{{verb}}}"
    if len(repositories) == 1:
        return repositories[0]
    if repositories:
        shown = listed(map(shown_path, repositories), _LISTED)
        why = f"contains {len(repositories)} model repositories: {shown}; name one of them"
        why += f", such as {remedy(command, folder=shown_path(repositories[0]))}"
    elif is_model(root):
        why = "is a model, expected a model repository; give its folder: "
        why += f"{remedy(command, folder=shown_path(root.parent))}"
    else:
        names = ", ".join(sorted(entry.name for entry in root.iterdir())[:_LISTED]) or "nothing"
        why = f"is not a model repository and contains none: it has {names}; expected folders of models, each with "
        why += "config.pbtxt or 1/model.py"
    raise BLSError(f"{verb}: {shown_path(root)} {why}")


def repositories_in(folder: Path) -> list[Path]:
    """Return the folder if it is a repository, else those below it.

    A folder of configurations without versions, such as ``config/`` beside a repository, counts only if no model below
    `folder` has a version, or if there are several repositories anyway: Git stores no empty version folders.
    """
    found: list[Path] = []
    for needed in (True, False):
        more = [folder] if _is_repository(folder, needed) else list(_repositories_below(folder, needed))
        found += [m for m in more if not any(f.is_relative_to(m) or m.is_relative_to(f) for f in found)]
        if len(found) == 1:
            break
    return found


def _is_repository(folder: Path, with_version: bool) -> bool:
    """Return whether a folder contains models, and more of them than repositories.

    A project may have a folder like a model, such as ``example/``, beside its repository.
    """
    models = _models_in(folder, with_version)
    others = (folder / name for name in model_names([folder]) if folder / name not in models)
    return len(models) > 0 and len(models) > sum(bool(_models_in(other, with_version)) for other in others)


def _models_in(folder: Path, with_version: bool) -> list[Path]:
    models = (folder / name for name in model_names([folder]))
    return [model for model in models if is_model(model) and (not with_version or version_folders(model))]


def is_model(folder: Path) -> bool:
    """Return whether a folder has a configuration, or a version folder with a file ``model.*``."""
    if config_files(folder):
        return True
    return any(any(version.glob("model.*")) for version in version_folders(folder).values())


def config_files(folder: Path) -> list[Path]:
    """Return the candidates for a model's configuration, best first: config.pbtxt, its variants, templates."""
    try:
        files = [f for f in sorted(folder.iterdir()) if ".pbtxt" in f.name and f.is_file()]
        templates = sorted((folder / "configs").glob("*.pbtxt"))
    except OSError:
        return []
    files.sort(key=lambda f: (f.name != "config.pbtxt", not f.name.startswith("config"), f.name))
    return files + templates


def _repositories_below(folder: Path, with_version: bool) -> Iterator[Path]:
    """Yield the repositories below a folder, uppermost first; repositories inside others are skipped."""
    for parent, folders, _ in islice(os.walk(folder), _MOST_FOLDERS):
        here = Path(parent)
        if here != folder and _is_repository(here, with_version):
            folders.clear()
            yield here
            continue
        deep = len(here.relative_to(folder).parts) >= _DEEPEST
        folders[:] = [f for f in sorted(folders) if not (deep or f.startswith(".") or f in IGNORED)]


# Files of a project's outermost folder, the surest first.
_ROOTS = [{"pyproject.toml", "setup.py", "setup.cfg"}, {"requirements.txt", "environment.yml", "Pipfile"}]
_ROOTS += [{"docker-compose.yml", "docker-compose.yaml", "compose.yml", "compose.yaml", "Dockerfile"}]
_HIGHEST = 4  # levels above a repository


def project_of(repository: Path, given: Path) -> Path:
    """Return a repository's project: the folder of Git, the `given` one around it, or one with a project's files."""
    above = [repository, *repository.parents]
    if found := next((folder for folder in above if (folder / ".git").exists()), None):
        return found
    near = [] if given != repository else [f for f in above[:_HIGHEST] if f not in (Path.home(), Path(f.anchor))]
    return next((f for names in _ROOTS for f in near if any((f / name).exists() for name in names)), given)


def project_folders(project: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield the folders of a project with the names of their folders and files, without those that tools make."""
    for parent, folders, names in islice(walk(project), _MOST_PROJECT):
        folders[:] = sorted(f for f in folders if f not in IGNORED and not f.startswith("."))
        yield Path(parent), folders, sorted(names)


def project_files(project: Path, name: re.Pattern[str]) -> list[Path]:
    """Return the files of a project whose names a pattern finds."""
    files = (here / each for here, _, names in project_folders(project) for each in names if name.search(each))
    return list(islice(files, _MOST_FILES))
