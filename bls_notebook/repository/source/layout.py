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
from pathlib import Path, PurePosixPath

from bls_notebook.engine.errors import BLSError, ConfigError, InvalidNameError, ModelNotFoundError
from bls_notebook.records.units import listed
from bls_notebook.records.visible_text import encodable, first_line, visible

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


_FORBIDDEN = re.compile(r'[/\\:*?"<>|\x00-\x1f\x7f]')
_SHELL = re.compile(r"""[;|&$`<>()\[\]{}\\"'*?~#!]""")  # python_backend/src/pb_utils.h
_NO_STUB = "Invalid argument: Invalid stub name: contains invalid characters"


def check_model_name(name: object) -> str:
    """Return a model's name, if it may be one: a plain folder name that cannot lead to another folder."""
    if not isinstance(name, str):
        raise InvalidNameError(
            f"model name: got {name!r} of type {type(name).__name__}, expected text such as 'add_sub'"
        )
    found = _FORBIDDEN.search(name)
    plain = name and encodable(name) == name.strip() and not name.startswith(".") and len(name.encode()) <= 255
    if found or not plain:
        shown = name if len(name) <= 60 else name[:57] + "..."
        why = f"it has {found[0]!r} in it" if found else "it is empty, hidden, too long or has spaces around"
        raise InvalidNameError(
            f"model name {shown!r} cannot be used: {why}. A model's name is the name of its "
            "folder; use letters, digits, '_', '-' and '.'",
            _NO_STUB if found and _SHELL.match(found[0]) else "",
        )
    return name


def check_launchable(name: str, what: str) -> None:
    """Raise for a name (described as `what`) with which a server's Python backend cannot start a process.

    Current servers refuse the load; older ones, which start it by a shell, never answer.
    """
    found = _SHELL.search(name)
    if found:
        raise InvalidNameError(
            f"{what} cannot be used by a model of the Python backend: it has {found[0]!r} in it, which means "
            "something to a shell, and the server refuses it; use letters, digits, '_', '-' and '.'",
            _NO_STUB,
        )


def check_version(version: object) -> int:
    """Return a model's version number, if it may be one: a whole number above 0."""
    if not isinstance(version, int) or isinstance(version, bool) or not 0 < version < 2**63:
        raise InvalidNameError(f"model version: got {version!r}, expected a whole number from 1, such as version=1")
    return version


def file_override_path(name: str) -> PurePosixPath:
    """Return where a file of `load_model(files=...)` goes, relative to the model's folder, never out of it.

    It is named ``file:<version>/<path>``, as in Triton, which takes ``file:/<version>/<path>`` for the same.
    """
    plain = name[5:] if isinstance(name, str) and name.startswith("file:") else ""
    path = PurePosixPath(plain.lstrip("/"))
    parts = path.parts
    if (
        len(parts) < 2
        or any(p in ("..", ".") or _FORBIDDEN.search(p) or len(p.encode("utf-8", "replace")) > 255 for p in parts)
        or "\\" in plain
        or encodable(plain) != plain
    ):
        shown = repr(name) if len(repr(name)) <= 80 else f"{repr(name)[:80]}..."
        raise InvalidNameError(
            f"file override {shown} cannot be used: expected 'file:<version>/<file name>' inside the "
            "model's folder, such as 'file:1/model.py'"
        )
    return path


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
