"""Detect changes of a model: fingerprints of its files, and the differences between two definitions."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from copy import deepcopy
from pathlib import Path

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.records.repository import Change
from bls_notebook.repository.config import ModelConfigMessage, to_pbtxt

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


_NEIGHBOURS = 1
_MOST = 40  # lines that are kept
_LONGEST = 4000  # lines of a text that is compared: the time grows with their square


def texts_of(model: LoadedModel | None) -> dict[str, str]:
    """Return the files that a cell gave a model; none where there is no model."""
    if model is None:
        return {}
    try:
        code = Path(model.directory, "model.py").read_text(encoding="utf-8")
    except (OSError, ValueError):  # an ensemble has none
        code = ""
    return {"model.py": code, "config.pbtxt": to_pbtxt(model.spec.config)}


def changes(before: dict[str, str], after: dict[str, str]) -> tuple[Change, ...]:
    """Return the files that differ; none where there was no definition before."""
    return tuple(
        _change(name, before[name].splitlines(), text.splitlines())
        for name, text in after.items()
        if name in before and before[name] != text
    )


def numbered_change(name: str, before: str, after: str, first: int) -> Change:
    """Return how a text changes, with the numbers of its lines, of which the first is `first`."""
    return _change(name, before.splitlines(), after.splitlines(), first)


def _change(name: str, before: list[str], after: list[str], first: int | None = None) -> Change:
    if max(len(before), len(after)) > _LONGEST:
        return Change(name, len(after), len(before), (("…", "too long to be compared"),))
    lines = list(_lines(before, after))
    signs = [sign for sign, _, _ in lines]
    more = len(lines) - _MOST
    kept = [*lines[:_MOST], ("…", f"{more} more lines", -1)] if more > 1 else lines
    numbers = () if first is None else tuple(first + at if at >= 0 else 0 for _, _, at in kept)
    return Change(name, signs.count("+"), signs.count("-"), tuple((s, text) for s, text, _ in kept), numbers)


def _lines(before: list[str], after: list[str]) -> Iterator[tuple[str, str, int]]:
    from difflib import SequenceMatcher

    for number, group in enumerate(SequenceMatcher(None, before, after).get_grouped_opcodes(_NEIGHBOURS)):
        if number:
            yield "…", "", -1
        for kind, a, b, c, d in group:
            if kind == "equal":
                yield from ((" ", before[at], at) for at in range(a, b))
            else:
                yield from (("-", before[at], at) for at in range(a, b))
                yield from (("+", line, -1) for line in after[c:d])
