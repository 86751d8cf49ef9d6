"""Models on disk, in Triton's layout: ``<repository>/<model>/config.pbtxt`` and ``<model>/<version>/``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from bls_notebook.engine.errors import BLSError, ModelNotFoundError
from bls_notebook.observe.visible import first_line

__all__ = ["config_text", "find_model", "model_names", "repository_paths", "shown_path", "version_folders"]


def repository_paths(paths: Iterable[str | Path]) -> tuple[Path, ...]:
    """Return the folders of a repository.

    Raises
    ------
    BLSError
        One of them is not a folder.
    """
    out = []
    for path in paths:
        try:
            folder = Path(path).expanduser().resolve()
            exists = folder.is_dir()
        except (TypeError, ValueError, RuntimeError, OSError) as error:
            raise BLSError(
                f"model repository {path!r}: {first_line(str(error))}; give the path of a folder"
            ) from error
        if not exists:
            raise BLSError(
                f"model repository {str(path)!r}: no such folder; give a folder whose sub-folders "
                "are models, or no "
                "path for models in memory only"
            )
        out.append(folder)
    return tuple(out)


def model_names(paths: Iterable[Path]) -> list[str]:
    """Return the names of the models in the folders; hidden ones are none."""
    return sorted(
        {
            entry.name
            for path in paths
            if path.is_dir()
            for entry in path.iterdir()
            if entry.is_dir() and not entry.name.startswith((".", "__"))
        }
    )


def find_model(paths: Iterable[Path], name: str) -> Path:
    """Return the folder of a model.

    Raises
    ------
    ModelNotFoundError
        There is none.
    BLSError
        There are several of that name.
    """
    paths = list(paths)
    found = [p / name for p in paths if (p / name).is_dir()]
    if not found:
        known = model_names(paths)
        where = ", ".join(repr(str(p)) for p in paths) or "memory only"
        hint = f"models there: {', '.join(known[:12])}" if known else "there are no models there"
        raise ModelNotFoundError(f"model {name!r} is not in the repository ({where}); {hint}")
    if len(found) > 1:
        raise BLSError(
            f"model {name!r} is in {len(found)} folders of the repository: {', '.join(map(str, found))}; "
            "a name must be unique"
        )
    return found[0]


def version_folders(folder: Path) -> dict[int, Path]:
    """Return the version folders of a model, by number; other folders are ignored, as in Triton."""
    out = {}
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name.isascii() and entry.name.isdigit() and entry.name[0] != "0":
            out[int(entry.name)] = entry
    return dict(sorted(out.items()))


def config_text(folder: Path) -> str | None:
    """Return the text of a model's config.pbtxt, None where it has none."""
    file = folder / "config.pbtxt"
    return file.read_text(encoding="utf-8") if file.is_file() else None


def shown_path(path: Path) -> str:
    """Return a path as a person would write it: from the working folder where that is no longer."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return str(path)
    return relative if len(relative) <= len(str(path)) else str(path)
