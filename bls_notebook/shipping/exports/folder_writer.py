"""Write a folder or an archive completely or not at all, and never over files that an export did not write.

Guarantees: a folder of the same name is replaced only if an export wrote every file in it and none has
changed since. It stays as it was until the last moment; a failure (also Ctrl-C or a full disk) leaves nothing
of the new one, and the next export removes what a killed process left. Several processes may write to one
place. The same files give the same bytes, in archives too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from bls_notebook.engine.errors import BLSError
from bls_notebook.records.visible_text import encodable

Content = bytes | Path
"""Of a file: its bytes, or where a copy of it is made from."""

MANIFEST = "bls_notebook_export.json"
"""The file that says which files were written, with the SHA-256 of each."""

_KIND = "bls_notebook export"
_CACHES = ("__pycache__", ".ipynb_checkpoints")  # what servers and editors leave in folders
_MADE = (1980, 1, 1, 0, 0, 0)  # the time of every file in an archive; the first that there is
_EXECUTABLE = (".sh",)
_UNDER_WAY, _BEFORE = ".exporting", ".before"  # folders and archives that are being written, or replaced


def is_cache(path: PurePosixPath | Path) -> bool:
    """Whether a file is what Python or an editor keeps, and nobody's own."""
    return any(part in _CACHES for part in path.parts) or path.suffix == ".pyc"


def write_folder(target: Path, files: Mapping[str, Content]) -> None:
    """Write files, by their paths in it, as a folder; a BLSError where that has something else in it."""
    target = Path(os.path.abspath(target))
    with _told(target):
        _refuse_foreign(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        with _alone(target.parent):
            _clear(target)
            made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=_UNDER_WAY, dir=target.parent))
            held = _lock(made)
        try:
            made.chmod(0o755)
            hashes = {path: _write(made / path, content) for path, content in sorted(files.items())}
            manifest = {"kind": _KIND, "schema": 1, "files": hashes}
            (made / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
            with _alone(target.parent):
                _refuse_foreign(target)  # there may be another since
                _put(made, target)
        finally:
            shutil.rmtree(made, ignore_errors=True)
            _unlock(held)


def write_archive(target: Path, files: Mapping[str, Content]) -> None:
    """Write files, by their paths in it, as a zip archive."""
    target = Path(os.path.abspath(target))
    with _told(target):
        if os.path.lexists(target) and not _is_archive_of_ours(target):
            raise BLSError(f"export: {target} is there and was not written by an export; give another name")
        target.parent.mkdir(parents=True, exist_ok=True)
        with _alone(target.parent):
            _clear(target)
            number, made = tempfile.mkstemp(prefix=f".{target.name}.", suffix=_UNDER_WAY, dir=target.parent)
            held = _lock(Path(made))
        try:
            with os.fdopen(number, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.comment = _KIND.encode()
                for path, content in sorted(files.items()):
                    if encodable(path) != path:
                        raise BLSError(
                            f"export: {encodable(path)}: its name is no UTF-8, as archives want it; rename "
                            "it, or export to a folder"
                        )
                    entry = zipfile.ZipInfo(path, _MADE)
                    entry.compress_type = zipfile.ZIP_DEFLATED
                    entry.external_attr = _mode(path, content) << 16
                    with archive.open(entry, "w", force_zip64=True) as into, _opened(content) as pieces:
                        for piece in pieces:
                            into.write(piece)
            os.chmod(made, 0o644)
            os.replace(made, target)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(made)
            _unlock(held)


def _lock(path: Path, wait: bool = True) -> int | None:
    """Hold a folder or file for oneself until it is let go, or the process ends; None where it cannot be."""
    if fcntl is None:
        return None
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException as error:
        os.close(handle)
        if isinstance(error, OSError):  # somebody else holds it, or the file system has no locks
            return None
        raise
    return handle


def _unlock(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other exports into a folder waiting."""
    handle = _lock(folder)
    try:
        yield
    finally:
        _unlock(handle)


def _clear(target: Path) -> None:
    """Remove what killed exports to the same place have left; what they had set aside comes back."""
    ours = re.compile(rf"\.{re.escape(target.name)}\.\w{{6,}}\.(exporting|before)")
    for path in target.parent.iterdir():
        if not ours.fullmatch(path.name):
            continue
        with contextlib.suppress(OSError):
            handle = _lock(path, wait=False)
            if handle is None:
                continue
            try:
                if path.suffix == _BEFORE and not os.path.lexists(target):
                    path.rename(target)
                elif path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            finally:
                _unlock(handle)


def _mode(path: str, content: Content) -> int:
    runs = path.endswith(_EXECUTABLE) or (isinstance(content, Path) and content.stat().st_mode & stat.S_IXUSR)
    return 0o755 if runs else 0o644


@contextlib.contextmanager
def _opened(content: Content) -> Iterator[Iterator[bytes]]:
    if isinstance(content, bytes):
        yield iter((content,))
        return
    with content.open("rb") as file:
        yield iter(lambda: file.read(1 << 20), b"")


def _write(path: Path, content: Content) -> str:
    found = hashlib.sha256()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file, _opened(content) as pieces:
        for piece in pieces:
            file.write(piece)
            found.update(piece)
    path.chmod(_mode(path.name, content))
    return found.hexdigest()


def _put(made: Path, target: Path) -> None:
    """Let a folder take the place of another, which is ours or empty."""
    if not target.exists():
        made.rename(target)
        return
    before = made.with_suffix(_BEFORE)
    target.rename(before)
    try:
        made.rename(target)
    except BaseException:
        before.rename(target)
        raise
    shutil.rmtree(before, ignore_errors=True)


def _refuse_foreign(target: Path) -> None:
    hint = "give another folder, or move what is in it"
    if not os.path.lexists(target):
        return
    if target.is_symlink() or not target.is_dir():
        raise BLSError(f"export: {target} is there and is no folder; give another")
    there = [p for p in sorted(target.rglob("*")) if not p.is_dir() or p.is_symlink()]
    wrote = _manifest(target)
    for path in there:
        name = path.relative_to(target).as_posix()
        if name == MANIFEST or is_cache(PurePosixPath(name)):
            continue
        if name not in wrote:
            raise BLSError(f"export: {target} has {name!r} in it, which no export wrote there; {hint}")
        if path.is_symlink() or wrote[name] != _hash(path):
            raise BLSError(f"export: {name!r} in {target} was changed since it was exported; {hint}")


def _manifest(target: Path) -> dict[str, str]:
    try:
        found = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    ours = isinstance(found, dict) and found.get("kind") == _KIND and isinstance(found.get("files"), dict)
    return found["files"] if ours else {}


def _hash(path: Path) -> str:
    found = hashlib.sha256()
    with _opened(path) as pieces:
        for piece in pieces:
            found.update(piece)
    return found.hexdigest()


def _is_archive_of_ours(target: Path) -> bool:
    try:
        with zipfile.ZipFile(target) as archive:
            return archive.comment == _KIND.encode()
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


@contextlib.contextmanager
def _told(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = "" if error.filename in (None, str(target)) else f" ({error.filename})"
        raise BLSError(f"export: {target} cannot be written: {error.strerror or error}{where}") from error
