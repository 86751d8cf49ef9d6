"""Fingerprints of a model's files and configuration."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path

from bls_notebook.records.regular_file import open_regular_file
from bls_notebook.repository.config import ModelConfigMessage

from .model_folders import files_below, version_folders

WHOLE = 1 << 20  # bytes; larger files are sampled for a hash
SAMPLE = 1 << 14
FilesSignature = tuple[tuple[str, int, int], ...]


def signature(folder: Path) -> FilesSignature:
    """Return the names, modification times and sizes of the files below a folder, to detect changes.

    Also the version folders: a version of a Python-based backend needs no files.
    """
    out = [(str(version), 0, 0) for version in version_folders(folder)]
    for file in files_below(folder):
        try:
            status = os.stat(file)
        except OSError:
            continue  # removed in the meantime
        if stat.S_ISREG(status.st_mode):
            out.append((os.path.relpath(file, folder), status.st_mtime_ns, status.st_size))
    return tuple(sorted(out))


def version_fingerprint(folder: Path, config: ModelConfigMessage, version: int) -> object:
    """Return a value that changes when a version must be reloaded: from its files, the shared files and the config.

    Ignores the instance groups and the version policy, whose changes need no reload on a server.
    """
    versions = version_folders(folder)
    return str(folder), _needing_reload(config), _shared(folder, versions), signature(versions[version])


def needs_reload(before: ModelConfigMessage, after: ModelConfigMessage) -> bool:
    """Return whether a server reloads a version for the change of its configuration."""
    return _needing_reload(before) != _needing_reload(after)


def _needing_reload(config: ModelConfigMessage) -> bytes:
    relevant = deepcopy(config)
    relevant.ClearField("instance_group")
    relevant.ClearField("version_policy")
    out: bytes = relevant.SerializeToString(deterministic=True)
    return out


def _shared(folder: Path, versions: Iterable[int]) -> FilesSignature:
    own = {"config.pbtxt", *map(str, versions)}
    return tuple(entry for entry in signature(folder) if Path(entry[0]).parts[0] not in own)


def code_hash(folder: Path, version: int) -> str:
    """Return a hash of the files of one version of a model, without its configuration.

    Equal files give equal hashes in any folder and with any modification times. A large file (weights) contributes its
    size and samples of its contents.
    """
    versions = version_folders(folder)
    own = versions.get(version)
    files = {} if own is None else {name: own / name for name, _, _ in signature(own)}
    files |= {f"../{name}": folder / name for name, _, _ in _shared(folder, versions)}
    out = hashlib.sha256()
    for name in sorted(files):
        try:
            with open_regular_file(files[name]) as file:
                size = os.fstat(file.fileno()).st_size
                out.update(f"{Path(name).as_posix()}\0{size}\0".encode("utf-8", "surrogateescape"))
                if size <= WHOLE:
                    out.update(file.read(WHOLE))
                    continue
                for part in range(64):
                    file.seek((size - SAMPLE) * part // 63)
                    out.update(file.read(SAMPLE))
        except OSError:
            continue  # removed in the meantime
    return out.hexdigest()
