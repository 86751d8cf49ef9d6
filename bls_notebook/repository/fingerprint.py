"""What tells that the files of a model, or of one of its versions, have changed."""

from __future__ import annotations

from pathlib import Path

from .config import ModelConfigMessage
from .layout import version_folders

__all__ = ["signature", "version_fingerprint"]

Signature = tuple[tuple[str, int, int], ...]


def signature(folder: Path) -> Signature:
    """Return what changes when files of a folder do: their names, times and sizes."""
    out = []
    for file in folder.rglob("*"):
        if "__pycache__" in file.parts:
            continue
        try:
            if file.is_file():
                found = file.stat()
                out.append((str(file.relative_to(folder)), found.st_mtime_ns, found.st_size))
        except OSError:
            continue  # it went away meanwhile
    return tuple(sorted(out))


def version_fingerprint(folder: Path, config: ModelConfigMessage, version: int) -> object:
    """Return what one version of a model is made of: its files, those that all versions share, the config.

    Parameters
    ----------
    folder : Path
        The model's own.
    """
    versions = version_folders(folder)
    others = {str(number) for number in versions}
    shared = tuple(entry for entry in signature(folder) if Path(entry[0]).parts[0] not in others)
    text = config.SerializeToString(deterministic=True)
    return str(folder), text, shared, signature(versions[version])
