"""Find files of a server's container in the project: below mount points, and relative to the server's working folder.

Compose files, Dockerfiles, scripts and guides say which folder a container has under which path. A path that none of
them names is looked for by its last parts, in the folders around the model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bls_notebook.records import source_text
from bls_notebook.repository.source import shown_path

from .discovery import project_files

_FILES = re.compile(r"(?i)dockerfile|containerfile|^makefile$|\.(sh|ya?ml|md|env)$")
_HERE = r"(?:\$\(pwd\)|\$\{?PWD\}?|`pwd`|\$PWD|\.)"
_MOUNTED = re.compile(rf"(?i)(?<![\w/.$)}}-])({_HERE}?/?[\w./-]*):(/\w[\w./-]*)")
_DEFAULT = re.compile(r"\$\{\w+:?-([^{}]*)\}")  # of a variable
_LONG = re.compile(r"(?i)(?:source|src)[:=]\s*([^\s,'\"]+)[\s,]+(?:target|destination|dst)[:=]\s*(/[^\s,'\"]+)")
_COPIED = re.compile(r"(?im)^\s*(?:COPY|ADD)\s+(?:--\S+\s+)*([^\s\[]+)\s+(\S+)\s*$")
_WORKDIR = re.compile(r"(?im)^\s*WORKDIR\s+(/\S*)")
_SAGEMAKER = "/opt/ml/model"  # where it unpacks a model repository
_SERVED = re.compile(r"--model-(?:repository|store)[=\s]+['\"]?(/[\w./-]+)")


@dataclass(frozen=True)
class ServerFile:
    """A file that code looks for, and its place in the project, which may be empty.

    `folder` in the project is `mounted` on a server: the path of a mount point, or empty for its working folder. `why`
    names the file that says so, if one does.
    """

    place: Path
    folder: Path
    mounted: str = ""
    why: str = ""

    def __str__(self) -> str:
        folder, because = shown_path(self.folder), f" ({self.why})" if self.why else ""
        if not self.mounted:
            return f"{folder} has it, if the server starts there"
        has = "" if self.place.exists() else ", which lacks it"
        return f"a server has {folder} as {self.mounted}{because}{has}" if self.why else f"{folder} has it"


def located(file: str, project: Path, repository: Path, near: Path) -> ServerFile | None:
    """Return the project's place of a file that is missing under its path; None if that is unknown.

    `near` is the innermost folder of the model that looks for it.
    """
    around = [folder for folder in (near, *near.parents) if folder.is_relative_to(project)]
    if not os.path.isabs(file):
        folders = [folder for folder, mounted, _ in _mounts(project, repository) if not mounted]
        return next((ServerFile(f / file, f) for f in (*reversed(around), *folders) if (f / file).exists()), None)
    if Path(file).is_relative_to(project):
        return None
    known = [
        ServerFile(folder / Path(file).relative_to(mounted), folder, mounted, why)
        for folder, mounted, why in _mounts(project, repository)
        if mounted and Path(file).is_relative_to(mounted)
    ]
    known.sort(key=lambda found: (not found.place.exists(), -len(found.mounted)))
    if Path(file).is_relative_to(_SAGEMAKER):
        found = ServerFile(repository / Path(file).relative_to(_SAGEMAKER), repository, _SAGEMAKER, "SageMaker")
        known += [found] if found.place.exists() else []
    parts = Path(file).parts
    for end in range(1, len(parts) - 1):  # at least two parts: names of files are seldom unique
        mounted = str(Path(*parts[: end + 1]))
        others = (ServerFile(f.joinpath(*parts[end:]), f / parts[end], mounted) for f in around)
        known += [each for each in others if each.place.exists()]
    return min(known, key=lambda each: not each.place.exists(), default=None)


def _mounts(project: Path, repository: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield folders and files of the project, their paths on a server (empty: its working folder), and who says so."""
    for file in project_files(project, _FILES):
        text, name = _DEFAULT.sub(r"\1", source_text(file)), file.name
        places = [parent for parent in file.parents if parent.is_relative_to(project)]
        for source, target in (*_MOUNTED.findall(text), *_LONG.findall(text)):
            relative = re.sub(rf"(?i)^{_HERE}(?=/|$)", "", source).lstrip("/")
            if (folder := _existing(places, relative)) is not None and (relative or source):
                yield folder, target.rstrip("/"), name
        workdir = next(iter(_WORKDIR.findall(text)), "/")
        for source, target in _COPIED.findall(text):
            if (copied := _existing(places, source.strip("\"'").lstrip("/"))) is not None:
                inside = target.endswith("/") and copied.is_file()
                path = os.path.normpath(os.path.join(workdir, target.strip("\"'"), copied.name if inside else ""))
                yield copied, path, name
                if path == os.path.normpath(workdir) and copied.is_dir():
                    yield copied, "", name
        for target in _SERVED.findall(text):
            yield repository, target.rstrip("/"), name


def _existing(places: list[Path], relative: str) -> Path | None:
    """Return the existing file or folder below the first of these folders, the last of which is the project's."""
    found = (Path(os.path.normpath(place / relative)) for place in places)
    return next((path for path in found if path.is_relative_to(places[-1]) and path.exists()), None)
