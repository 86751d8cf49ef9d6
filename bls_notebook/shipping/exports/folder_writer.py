"""Writes a folder or an archive completely or not at all, and never over files that an export did not write.

Guarantees: an existing folder is replaced only if an export wrote every file in it and none has changed since. It
stays unchanged until the new one is complete; a failure (also Ctrl-C or a full disk) leaves no new files. The same
files give the same bytes, in archives too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from bls_notebook.engine import BLSError
from bls_notebook.records import encodable, open_regular_file

Content = bytes | Path
"""A file's bytes, or the file to copy."""

MANIFEST = "bls_notebook_export.json"
"""The file that lists the written files, with the SHA-256 of each."""

_PIECE = 1 << 20  # bytes that are read at a time
_KIND = "bls_notebook export"
_CACHES = ("__pycache__", ".ipynb_checkpoints")  # folders that servers and editors create
_TIME = (1980, 1, 1, 0, 0, 0)  # of every file in an archive: the earliest time in the zip format


def is_cache(path: PurePosixPath | Path) -> bool:
    """Return whether a file is a cache of Python or an editor's backup."""
    return any(part in _CACHES for part in path.parts) or path.suffix == ".pyc"


def write_folder(target: Path, files: Mapping[str, Content]) -> None:
    """Write files, given by path, as a folder; BLSError if the folder has files that no export wrote."""
    target = Path(os.path.abspath(target))
    with _write_errors(target):
        _refuse_foreign(target)
        with _staging(target) as staging:
            new, old = staging / "new", staging / "old"
            hashes = {path: _write(new / path, content) for path, content in sorted(files.items())}
            manifest = {"kind": _KIND, "schema": 1, "files": hashes}
            (new / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
            _refuse_foreign(target)  # it may have changed in the meantime
            try:
                if target.exists():
                    target.rename(old)
                new.rename(target)
            except BaseException:
                if old.exists() and not target.exists():
                    old.rename(target)
                raise


def write_archive(target: Path, files: Mapping[str, Content]) -> None:
    """Write files, given by path, as a zip archive; BLSError if the file exists and no export wrote it."""
    target = Path(os.path.abspath(target))
    with _write_errors(target):
        if os.path.lexists(target) and not _is_exported_archive(target):
            raise BLSError(f"export: {target} exists and was not written by an export; choose another name")
        with _staging(target) as staging:
            new = staging / "new"
            with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.comment = _KIND.encode()
                for path, content in sorted(files.items()):
                    if encodable(path) != path:
                        raise BLSError(
                            f"export: {encodable(path)}: archives need file names in UTF-8; rename the file, or "
                            "export to a folder"
                        )
                    entry = zipfile.ZipInfo(path, _TIME)
                    entry.compress_type = zipfile.ZIP_DEFLATED
                    entry.external_attr = _mode(path, content) << 16
                    with archive.open(entry, "w", force_zip64=True) as into, _opened(content) as source:
                        shutil.copyfileobj(source, into, _PIECE)
            os.replace(new, target)


@contextlib.contextmanager
def _staging(target: Path) -> Iterator[Path]:
    """Yield a temporary folder next to the target, on the same file system; a failure removes new parent folders."""
    missing = [parent for parent in target.parents if not parent.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{target.name}.", dir=target.parent, ignore_cleanup_errors=True
        ) as folder:
            yield Path(folder)
    except BaseException:
        with contextlib.suppress(OSError):
            for parent in missing:
                parent.rmdir()
        raise


def _mode(path: str, content: Content) -> int:
    is_executable = path.endswith(".sh") or (isinstance(content, Path) and content.stat().st_mode & stat.S_IXUSR)
    return 0o755 if is_executable else 0o644


def _opened(content: Content) -> BinaryIO:
    return BytesIO(content) if isinstance(content, bytes) else open_regular_file(content)


def _write(path: Path, content: Content) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file, _opened(content) as source:
        shutil.copyfileobj(source, file, _PIECE)
    path.chmod(_mode(path.name, content))
    return file_hash(path)


def _refuse_foreign(target: Path) -> None:
    hint = "choose another folder, or move its files"
    if not os.path.lexists(target):
        return
    if target.is_symlink() or not target.is_dir():
        raise BLSError(f"export: {target} exists and is not a folder; choose another")
    exported = exported_hashes(target)
    for path in sorted(target.rglob("*")):
        name = path.relative_to(target).as_posix()
        if name == MANIFEST or is_cache(PurePosixPath(name)) or (path.is_dir() and not path.is_symlink()):
            continue
        if name not in exported:
            raise BLSError(f"export: {target} contains {name!r}, which no export wrote; {hint}")
        if path.is_symlink() or exported[name] != file_hash(path):
            raise BLSError(f"export: {name!r} in {target} was changed since it was exported; {hint}")


def exported_hashes(target: Path) -> dict[str, str]:
    """Return the SHA-256 of each file that an export wrote into a folder; empty if none did."""
    try:
        manifest = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    is_export = isinstance(manifest, dict) and manifest.get("kind") == _KIND and isinstance(manifest.get("files"), dict)
    return manifest["files"] if is_export else {}


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with open_regular_file(path) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _is_exported_archive(target: Path) -> bool:
    try:
        with zipfile.ZipFile(target) as archive:
            return archive.comment == _KIND.encode()
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


@contextlib.contextmanager
def _write_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = "" if error.filename in (None, str(target)) else f" ({error.filename})"
        raise BLSError(f"export: {target} cannot be written: {error.strerror or error}{where}") from error
