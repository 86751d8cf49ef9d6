"""Models on disk, in Triton's layout: ``<repository>/<model>/config.pbtxt`` and ``<model>/<version>/``."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from bls_notebook.engine.core.server import servers
from bls_notebook.engine.errors import BLSError, ConfigError, ModelNotFoundError
from bls_notebook.records.regular_file import MAX_CONFIG, read_file
from bls_notebook.records.visible_text import first_line, visible

from .names import name_problem

BACKENDS = "backends"  # folder of Python-based backends, beside the models or the repository
_POINTER = b"version https://git-lfs"
_MOST_LINKED = 10_000
DEEPEST = 200  # folders in folders; Python visits, makes and removes them recursively
_MOST_FILES = 10_000  # most files of a model that are searched for Git LFS pointers
# A closing quote may be missing: a search that fails at one quote would repeat at each of the next ones.
_COMMENT = re.compile(r"""("[^"\\\n]*(?:\\.[^"\\\n]*)*"?|'[^'\\\n]*(?:\\.[^'\\\n]*)*'?)|#[^\n]*""")
_VERSION = re.compile("[1-9][0-9]{0,17}")
_UNDECODED = re.compile("[\udc80-\udcff]")


def repository_paths(paths: Iterable[str | Path | Sequence[str | Path]]) -> tuple[Path, ...]:
    """Return the folders of a repository, given as paths and lists of paths."""
    hint = "give a folder whose sub-folders are models, or no path for models in memory only"
    lists = [group if isinstance(group, (list, tuple)) else (group,) for group in paths]
    return tuple(folder_path(path, "model repository", hint) for group in lists for path in group)


def folder_path(path: str | Path, what: str, hint: str) -> Path:
    """Return the absolute path of a folder; the error begins with `what` and ends with `hint`."""
    try:
        folder = Path(path).expanduser().resolve()
        exists = folder.is_dir()
    except (TypeError, ValueError, RuntimeError, OSError) as error:
        raise BLSError(f"{what} {path!r}: {first_line(str(error))}; give the path of a folder") from error
    if not exists:
        raise BLSError(f"{what} {str(path)!r}: no such folder; {hint}")
    return folder


def backend_path(path: str | Path | None) -> Path | None:
    """Return the absolute path of a folder of backends; None for None."""
    hint = "give a folder that contains folders of backends"
    return None if path is None else folder_path(path, "backend_directory", hint)


def backend_folders(paths: Sequence[Path], backend_directory: Path | None) -> tuple[Path, ...]:
    """Return the folders to search for backends; by default `backends` beside and inside the repository's folders."""
    if backend_directory is not None:
        return (backend_directory,)
    return tuple(f / BACKENDS for path in paths for f in (path.parent, path)) or (working_folder() / BACKENDS,)


def model_names(paths: Iterable[Path]) -> list[str]:
    """Return the names of the models in the folders; hidden folders, and names that no model can have, are ignored."""
    folders = [entry for path in paths for entry in _folders_in(path) if not name_problem(entry.name)]
    folders = [folder for folder in folders if not folder.name.startswith("__")]
    # A folder named `backends` contains Python-based backends, unless it has the files of a model.
    return sorted(
        {f.name for f in folders if f.name != BACKENDS or (f / "config.pbtxt").is_file() or version_folders(f)}
    )


def duplicates(paths: Iterable[Path]) -> set[str]:
    """Return the names of the models that are in several folders of a repository."""
    counts = Counter(name for path in dict.fromkeys(paths) for name in model_names([path]))
    return {name for name, count in counts.items() if count > 1}


def misnamed_folders(paths: Iterable[Path]) -> dict[str, str]:
    """Return the folders that cannot be models because of their names, as text for messages, with the reasons."""
    names = [e.name for path in paths for e in _folders_in(path) if not e.name.startswith((".", "__"))]
    return {visible(name): problem for name in sorted(names) if (problem := name_problem(name))}


def _folders_in(path: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [entry for entry in path.iterdir() if _is_folder(entry)]
    return []


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # no permission to read it
        return False


def find_model(paths: Iterable[Path], name: str) -> Path:
    """Return the folder of a model; a ModelNotFoundError if there is none, a BLSError if there are several."""
    paths = list(dict.fromkeys(paths))  # a folder that is given twice counts once, as on a server
    folders = [p / name for p in paths if _is_folder(p / name)]
    if not folders:
        known = model_names(paths)
        where = ", ".join(repr(str(p)) for p in paths) or "memory only"
        hint = f"its models: {', '.join(known[:12])}" if known else "it has no models"
        served = any(server.find(name) is not None for server in list(servers))
        hint += "; another repository of this process serves it: pass that one, `repo=...`" if served else ""
        raise ModelNotFoundError(f"model {name!r} is not in the repository ({where}); {hint}")
    if len(folders) > 1:
        raise BLSError(
            f"model {name!r} is in {len(folders)} folders of the repository: {', '.join(map(str, folders))}; "
            "rename or remove all but one, because names must be unique"
        )
    return folders[0]


def version_folders(folder: Path) -> dict[int, Path]:
    """Return the version folders of a model, by number; other folders are ignored, as in Triton."""
    return dict(sorted((int(entry.name), entry) for entry in _folders_in(folder) if _VERSION.fullmatch(entry.name)))


def walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield what `os.walk` does, without folders more than `DEEPEST` below the first."""
    for parent, folders, names in os.walk(folder):
        if parent.count(os.sep) - str(folder).count(os.sep) >= DEEPEST:
            folders.clear()
        yield parent, folders, names


def python_files(folder: Path) -> Iterator[Path]:
    """Yield the Python files below a folder."""
    return (Path(parent, name) for parent, _, names in walk(folder) for name in names if name.endswith(".py"))


def files_below(folder: Path) -> Iterator[str]:
    """Yield the paths of all files below a folder, except in `__pycache__`.

    Links are followed, except links to a folder above the link. Unreadable folders are skipped. Raises BLSError below
    `DEEPEST` folders, and after `_MOST_LINKED` folders that links lead to: links to links can have more paths than
    there are atoms.
    """
    linked = 0
    path_of_folder = os.path.realpath(folder)
    ancestors: dict[str, tuple[str, ...]] = {str(folder): (path_of_folder,)}
    for parent, folders, names in os.walk(folder, followlinks=True):
        ancestors_of_parent = ancestors.pop(parent)
        if len(ancestors_of_parent) > DEEPEST:
            raise BLSError(
                f"model folder {shown_path(folder)}: more than {DEEPEST} folders are in each other; remove them"
            )
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in list(folders):
            path = os.path.join(parent, name)
            real = os.path.join(ancestors_of_parent[-1], name)
            real = os.path.realpath(real) if os.path.islink(real) else real
            if real in ancestors_of_parent:
                folders.remove(name)
            else:
                ancestors[path] = (*ancestors_of_parent, real)
                linked += real != path_of_folder + path[len(str(folder)) :]
        if linked > _MOST_LINKED:
            raise BLSError(
                f"model folder {shown_path(folder)}: links lead to more than {_MOST_LINKED:,} folders; "
                "remove links, or copy the files that the model needs"
            )
        yield from (os.path.join(parent, name) for name in sorted(names))


def is_pointer(file: Path) -> bool:
    """Return whether a file is a Git LFS pointer, whose contents have not been fetched."""
    try:
        return read_file(file, 1024).startswith(_POINTER)
    except OSError:
        return False


def pointers_in(folder: Path) -> list[Path]:
    """Return the Git LFS pointers among the first `_MOST_FILES` files below a folder."""
    return sorted(filter(is_pointer, map(Path, islice(files_below(folder), _MOST_FILES))))


def config_text(folder: Path, config_name: str = "") -> str | ConfigError | None:
    """Return the text of a model's config.pbtxt; None if there is no such file, a ConfigError if it is unreadable.

    ``configs/<config_name>.pbtxt`` is used instead, if it exists.
    """
    data, custom = b"", folder / "configs" / f"{config_name}.pbtxt"
    try:
        data = read_file(custom if config_name and custom.is_file() else folder / "config.pbtxt", MAX_CONFIG)
        return data.decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        why = f"it cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        if _UNDECODED.search(_COMMENT.sub(r"\1", data.decode(errors="surrogateescape"))) is None:
            return data.decode(errors="replace")  # the other bytes are in comments, which servers ignore
        number = data.count(b"\n", 0, error.start) + 1
        line = visible(data.splitlines()[number - 1][:160].decode("utf-8", "backslashreplace").strip())
        why = f"line {number} is not UTF-8: {line}; save the file with the encoding UTF-8"
    return ConfigError(f"model '{folder.name}': config.pbtxt: {why}")


def working_folder() -> Path:
    """Return the working folder; if it was removed, a path that has no files below it."""
    try:
        return Path.cwd()
    except OSError:
        return Path(os.devnull)


def shown_path(path: Path) -> str:
    """Return a path as text for messages, relative to the working folder if that is shorter and not far above it."""
    try:
        near = os.path.relpath(path)
        shown = str(path) if near.startswith(os.path.join("..", "..")) else min(near, str(path), key=len)
    except (ValueError, OSError):  # on another drive, or the working folder was removed
        shown = str(path)
    return visible(shown)
