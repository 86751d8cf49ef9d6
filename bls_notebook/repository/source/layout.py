"""Models on disk, in Triton's layout: ``<repository>/<model>/config.pbtxt`` and ``<model>/<version>/``.

Names of models, versions and files are checked here: nothing may lead out of its folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from bls_notebook.engine.errors import BLSError, ConfigError, ModelNotFoundError
from bls_notebook.records.visible_text import first_line, visible

BACKENDS = "backends"  # a folder of Python-based backends, beside the models or their repository
_POINTER = b"version https://git-lfs"
_MOST_FILES = 10_000  # of a model that are looked at
MAX_CONFIG = 1 << 24  # bytes
_COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|#[^\n]*""")
_UNDECODED = re.compile("[\udc80-\udcff]")


def repository_paths(paths: Iterable[str | Path | Sequence[str | Path]]) -> tuple[Path, ...]:
    """Return the folders of a repository, from paths and lists of paths."""
    hint = "give a folder whose sub-folders are models, or no path for models in memory only"
    lists = [each if isinstance(each, (list, tuple)) else (each,) for each in paths]
    return tuple(folder_path(path, "model repository", hint) for each in lists for path in each)


def folder_path(path: str | Path, what: str, hint: str) -> Path:
    """Return the whole path of a folder; an error calls it `what`, and has a hint what to give instead."""
    try:
        folder = Path(path).expanduser().resolve()
        exists = folder.is_dir()
    except (TypeError, ValueError, RuntimeError, OSError) as error:
        raise BLSError(f"{what} {path!r}: {first_line(str(error))}; give the path of a folder") from error
    if not exists:
        raise BLSError(f"{what} {str(path)!r}: no such folder; {hint}")
    return folder


def backend_path(path: str | Path | None) -> Path | None:
    """Return the whole path of a folder of backends, None where none is given."""
    hint = "give a folder that has the folders of backends in it"
    return None if path is None else folder_path(path, "backend_directory", hint)


def backend_folders(paths: Sequence[Path], given: Path | None) -> tuple[Path, ...]:
    """Return where backends are looked for: where given, else in `backends` beside and in the repository."""
    if given is not None:
        return (given,)
    return tuple(f / BACKENDS for path in paths for f in (path.parent, path)) or (Path.cwd() / BACKENDS,)


def model_names(paths: Iterable[Path]) -> list[str]:
    """Return the names of the models in the folders; hidden ones are none."""
    folders = [entry for path in paths for entry in _folders_in(path) if not entry.name.startswith((".", "__"))]
    # A folder `backends` is that of Python-based backends, unless it is a model.
    return sorted(
        {f.name for f in folders if f.name != BACKENDS or (f / "config.pbtxt").is_file() or version_folders(f)}
    )


def _folders_in(path: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [entry for entry in path.iterdir() if _is_folder(entry)]
    return []


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # somebody else's
        return False


def find_model(paths: Iterable[Path], name: str) -> Path:
    """Return the folder of a model."""
    paths = list(paths)
    found = [p / name for p in paths if _is_folder(p / name)]
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
    for entry in _folders_in(folder):
        if entry.name.isascii() and entry.name.isdigit() and entry.name[0] != "0" and len(entry.name) < 19:
            out[int(entry.name)] = entry
    return dict(sorted(out.items()))


def files_below(folder: Path) -> Iterator[str]:
    """Yield the paths of what is in a folder and those in it, but for Python's caches.

    Links are followed, except links to a folder above the link; unreadable files are skipped.
    """
    around: dict[str, tuple[str, ...]] = {str(folder): (os.path.realpath(folder),)}
    for within, folders, names in os.walk(folder, followlinks=True):
        above = around.pop(within)
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in list(folders):
            path = os.path.join(within, name)
            real = os.path.realpath(path) if os.path.islink(path) else os.path.join(above[-1], name)
            if real in above:
                folders.remove(name)
            else:
                around[path] = (*above, real)
        yield from (os.path.join(within, name) for name in sorted(names))


def is_pointer(file: Path) -> bool:
    """Whether a file is what Git LFS leaves where it has not fetched the contents."""
    try:
        if not 0 < file.stat().st_size < 1024:
            return False
        with file.open("rb") as opened:
            return opened.read(len(_POINTER)) == _POINTER
    except OSError:
        return False


def pointers_in(folder: Path) -> list[Path]:
    """Return the files below a folder that Git LFS has not fetched, of those that are not too many."""
    files = map(Path, islice(files_below(folder), _MOST_FILES))
    return sorted(filter(is_pointer, files))


def config_text(folder: Path) -> str | ConfigError | None:
    """Return the text of a model's config.pbtxt, None where it has none; why, where it cannot be read."""
    file = folder / "config.pbtxt"
    data = b""
    try:
        found = file.stat()
        if not stat.S_ISREG(found.st_mode):
            why = "it is no file; put the configuration's text into a file of that name"
        elif found.st_size > MAX_CONFIG:
            why = f"it has {found.st_size:,} bytes, expected at most {MAX_CONFIG:,}: no configuration has"
        else:
            data = file.read_bytes()
            return data.decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        why = f"it cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        if _UNDECODED.search(_COMMENT.sub(r"\1", data.decode(errors="surrogateescape"))) is None:
            return data.decode(errors="replace")  # in comments, which a server passes over
        number = data.count(b"\n", 0, error.start) + 1
        line = visible(data.splitlines()[number - 1][:160].decode("utf-8", "backslashreplace").strip())
        why = f"line {number} is no UTF-8: {line}; save the file with the encoding UTF-8"
    return ConfigError(f"model '{folder.name}': config.pbtxt: {why}")


def shown_path(path: Path) -> str:
    """Return a path relative to the working folder, unless that is longer."""
    try:
        relative = os.path.relpath(path)
    except (ValueError, OSError):  # another drive; or the working folder has gone
        return str(path)
    return relative if len(relative) <= len(str(path)) else str(path)
