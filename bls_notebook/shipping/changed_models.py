"""`export_changes`: how the models that cells changed differ from a model repository, and writing them into it.

Guarantees: without `write`, nothing is written. Files that do not differ, files of other models, and a config.pbtxt
with the same meaning do not change; no file is removed. All new files are complete before the first replaces another.
"""

from __future__ import annotations

import difflib
import filecmp
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path

from bls_notebook.engine import BLSError
from bls_notebook.extending import Host, host_of, operation
from bls_notebook.records import MAX_CODE, Change, source_text
from bls_notebook.repository import ModelRepository
from bls_notebook.repository.config import parse_config, to_pbtxt
from bls_notebook.repository.source import shown_path, version_folders

from .exporter import KEEP, ModelToExport, collect, obstacles_of
from .exports.config_text import changed_text
from .exports.folder_writer import Content
from .records import ChangedModel, Changes

_TEXTS = (".py", ".pbtxt", ".txt", ".json", ".md", ".yaml", ".yml", ".toml", ".cfg")


@operation
def export_changes(
    *names: str, place: str | Path | None = None, write: bool = False, repo: ModelRepository | None = None
) -> Changes:
    """Return how models that cells changed differ from a model repository on disk, and write them into it.

    Parameters
    ----------
    *names : str
        Names of loaded models; by default all.
    place : str or Path, optional
        The model repository. By default, each model's own folder in the repository's folders, and the first of these
        for a new model.
    write : bool
        Whether to write the changed files. Otherwise nothing is written.
    repo : ModelRepository, optional
        Default: `current_repository`.

    Returns
    -------
    Changes
        The changed models with their differences; models without a change are not in it.

    Raises
    ------
    BLSError
        A model is not loaded, there is no folder, or a model cannot run on a server and `write` is true.
    """
    host = host_of(repo)
    for name in names:
        host.ready(name)
    changed = [name for name in names or host.names() if _by_user(host, name)]
    models = collect(host, changed, completed=False, secrets=True)
    contents = {name: (models[name], _target(host, name, place)) for name in changed}
    files = {name: dict(_changed_files(model, folder)) for name, (model, folder) in contents.items()}
    files = {name: own for name, own in files.items() if own}
    obstacles = {name: tuple(obstacles_of(models[name])) for name in files}
    records = []
    for name, own in files.items():
        model, folder = contents[name]
        newest = max(version_folders(folder), default=0)
        newer = [f"the folder also has version {newest}, which a server serves by default"]
        notes = (*(newer if newest > max(model.source.versions, default=newest) else ()), *obstacles[name])
        changes = tuple(_change(path, folder / path, content) for path, content in own.items())
        records.append(ChangedModel(name, shown_path(folder), changes, notes))
    if write:
        if problems := [line for lines in obstacles.values() for line in lines]:
            what = "export: nothing was written, because this would fail on a server:"
            raise BLSError("\n  ".join([what, *problems]))
        _write({contents[name][1] / path: content for name, own in files.items() for path, content in own.items()})
    return Changes(tuple(records), len(names) or len(host.names()), write)


def _by_user(host: Host, name: str) -> bool:
    """Return whether a cell or an override, and not a folder, gave the model in service."""
    model = host.find(name)
    if model is None or model.seen.remote or model.seen.stub:
        return False
    source = host.source(name, loaded=True)
    return source.origin == "cell" or source.config_is_json


def _target(host: Host, name: str, place: str | Path | None) -> Path:
    """Return the folder of a model on disk, which may be new."""
    folders = [Path(place).expanduser()] if place is not None else list(host.repository.paths)
    if not folders:
        raise BLSError("export: the repository has no folder on disk; name one: %tritonrepo export FOLDER --changed")
    return next((each / name for each in folders if (each / name).is_dir()), folders[0] / name)


def _changed_files(model: ModelToExport, folder: Path) -> Iterator[tuple[str, Content]]:
    for path, content in {**model.content.files, "config.pbtxt": _config(model, folder / "config.pbtxt")}.items():
        file = folder / path
        same = file.is_file() and (
            file.read_bytes() == content if isinstance(content, bytes) else filecmp.cmp(file, content, shallow=False)
        )
        if not same and Path(path).name != KEEP:
            yield path, content


def _config(model: ModelToExport, file: Path) -> bytes:
    """Return the content of config.pbtxt, which is the file's if that means the same or has templates."""
    source, given = model.source, deepcopy(model.checked.given)
    given.name = source.model
    text = source.config if isinstance(source.config, str) and not source.config_is_json else ""
    if file.is_file():
        try:
            before = parse_config(_text(file), model=source.model)
        except BLSError:
            return file.read_bytes()
        before.name = given.name  # it may be missing
        if before.HasField("version_policy") and not given.HasField("version_policy"):  # a cell has one version
            given.version_policy.CopyFrom(before.version_policy)
        if before == given:
            return file.read_bytes()
        text = text or changed_text(_text(file), before, given)
    else:
        given.backend = given.backend or model.spec.backend
    return (text or to_pbtxt(given)).encode()


def _text(content: Content) -> str:
    return content.decode("utf-8", "replace") if isinstance(content, bytes) else source_text(content, MAX_CODE)


def _change(path: str, file: Path, content: Content) -> Change:
    """Return the unified differences of a file, with three lines of context."""
    if not path.endswith(_TEXTS):
        return Change(path, lines=(("…", "not text"),))
    before, after = (_text(each).splitlines() for each in (file, content))
    lines = [
        ("…", line) if line.startswith("@@") else (line[:1], line[1:])
        for line in list(difflib.unified_diff(before, after, lineterm=""))[2:]
    ]
    signs = [sign for sign, _ in lines]
    return Change(path, signs.count("+"), signs.count("-"), tuple(lines))


def _write(files: dict[Path, Content]) -> None:
    """Write files; existing files keep their mode, and links are followed."""
    with ExitStack() as stack:
        new: list[tuple[Path, Path]] = []
        try:
            for path, content in files.items():
                target = path.resolve()
                target.parent.mkdir(parents=True, exist_ok=True)
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=".bls-", dir=target.parent))
                file = Path(folder) / "new"
                file.write_bytes(content) if isinstance(content, bytes) else shutil.copyfile(content, file)
                if target.exists():
                    shutil.copymode(target, file)
                new.append((file, target))
            for file, target in new:
                os.replace(file, target)
        except OSError as error:
            raise BLSError(f"export: {error.filename} cannot be written: {error.strerror or error}") from error
