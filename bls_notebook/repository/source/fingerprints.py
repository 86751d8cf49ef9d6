"""Fingerprints of a model's files and configuration."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path

from bls_notebook.repository.config import ModelConfigMessage

from .layout import files_below, version_folders

WHOLE = 1 << 20  # bytes of a file that is read whole for a hash
SAMPLE = 1 << 14
Signature = tuple[tuple[str, int, int], ...]


def signature(folder: Path) -> Signature:
    """Return what changes when files of a folder do: their names, times and sizes."""
    out = []
    for file in files_below(folder):
        try:
            found = os.stat(file)
        except OSError:
            continue  # it went away meanwhile
        if stat.S_ISREG(found.st_mode):
            out.append((os.path.relpath(file, folder), found.st_mtime_ns, found.st_size))
    return tuple(sorted(out))


def version_fingerprint(folder: Path, config: ModelConfigMessage, version: int) -> object:
    """Return what one version of a model is made of: its files, those that all versions share, the config.

    Of the config all but what a server changes without loading a version again: its instance groups, and the
    version policy.
    """
    versions = version_folders(folder)
    compared = deepcopy(config)
    compared.ClearField("instance_group")
    compared.ClearField("version_policy")
    text = compared.SerializeToString(deterministic=True)
    return str(folder), text, _shared(folder, versions), signature(versions[version])


def _shared(folder: Path, versions: Iterable[int]) -> Signature:
    own = {"config.pbtxt", *map(str, versions)}
    return tuple(entry for entry in signature(folder) if Path(entry[0]).parts[0] not in own)


def code_hash(folder: Path, version: int) -> str:
    """Return a hash of what one version of a model is made of, beside its configuration.

    The same files give the same hash wherever they lie, and whatever their times. Of a large file (weights)
    its size and samples of its contents are taken.
    """
    versions = version_folders(folder)
    own = versions.get(version)
    files = {} if own is None else {name: own / name for name, _, _ in signature(own)}
    files |= {f"../{name}": folder / name for name, _, _ in _shared(folder, versions)}
    out = hashlib.sha256()
    for name in sorted(files):
        try:
            size = files[name].stat().st_size
            out.update(f"{Path(name).as_posix()}\0{size}\0".encode("utf-8", "surrogateescape"))
            with files[name].open("rb") as file:
                if size <= WHOLE:
                    out.update(file.read(WHOLE))
                    continue
                for part in range(64):
                    file.seek((size - SAMPLE) * part // 63)
                    out.update(file.read(SAMPLE))
        except OSError:
            continue  # it went away meanwhile
    return out.hexdigest()
