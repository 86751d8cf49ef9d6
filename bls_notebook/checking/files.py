"""Files: versions and model files that are not there, git-LFS pointers, configurations that are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bls_notebook.records.quantities import count, listed
from bls_notebook.repository.config import pick_versions
from bls_notebook.repository.config.complete import KNOWN_BACKENDS
from bls_notebook.repository.config.template_places import line_of
from bls_notebook.repository.source.layout import pointers_in, shown_path, version_folders

from .graphs import graph_finding
from .material import CONFIG, Material
from .records import Finding

_PLACE = re.compile(r"\bconfig(?:\.pbtxt)?:(\d+):\d+: ")
_LOAD_FILE = frozenset({*KNOWN_BACKENDS, "tensorflow"})  # what others do is their own affair


def is_model(model: Material) -> bool:
    """Whether a folder has anything of a model in it."""
    return (model.folder / CONFIG).exists() or bool(model.text or version_folders(model.folder))


def file_findings(model: Material) -> Iterator[Finding]:
    """Yield what keeps a server from reading a model at all."""
    if model.templates:
        yield from _templates(model)
    found = version_folders(model.folder)
    wanted = pick_versions(model.config, found) if not model.problem else list(found)
    # Without any file the backend cannot be told; servers up to 25.02 still have that of TensorFlow.
    told = not wanted and not (model.config.backend or model.config.platform)
    if model.problem and not told and not model.config.platform.startswith("tensorflow_"):
        yield _refused(model)
    if not wanted:
        yield _no_version(model, list(found))
    if model.config.version_policy.HasField("specific"):
        for version in model.config.version_policy.specific.versions:
            if version not in found:
                yield model.in_config(
                    "warning", "version-missing", "version_policy",
                    f"version {version} is asked for, and there is no folder {version}",
                    "The server logs an error and serves the other versions.",
                    f"Add the folder {version}, or take the number out of version_policy.",
                )  # fmt: skip
    if model.misfit:
        yield graph_finding(model.name, model.where, line_of(model.text, "max_batch_size"), model.misfit)
    for version in wanted:
        yield from _of_version(model, found[version])


def _templates(model: Material) -> Iterator[Finding]:
    """Yield what is to be said of open templates: of all at once, there are often dozens."""
    keys = list(dict.fromkeys(template.written for template in model.templates))
    unread = [template for template in model.templates if not template.quoted]
    first = (unread or model.templates)[0]
    why = (
        "config.pbtxt cannot be read before a value stands there."
        if unread
        else "A server hands them to the model as they stand, and the model takes them for values."
    )
    yield Finding(
        "error" if unread else "warning", "template-open", model.name,
        f"{count(len(keys), 'template')} not filled: {listed(keys, 5)}", why,
        f"Fill them in the file; here also by `ModelRepository(..., fill={{{first.key!r}: ...}})`.",
        model.where, first.line,
    )  # fmt: skip


def _refused(model: Material) -> Finding:
    place = _PLACE.search(model.problem)
    words = model.problem.removeprefix(f"model '{model.name}': ")
    words = _PLACE.sub("", words).removeprefix("config.pbtxt: ")
    what, _, mend = words.partition("; the line is: ")[0].partition("; ")
    line = int(place[1]) if place else 0
    others = [entry.name for entry in _entries(model.folder) if CONFIG.partition(".")[0] in entry.name]
    if others and CONFIG not in others:
        what += f"; there is {others[0]}, which a server does not read"
        mend = f"Make {CONFIG} of {others[0]}."
    why = "The server refuses to load it."
    return Finding("error", "config-refused", model.name, what, why, mend, model.where, line)


def _no_version(model: Material, found: list[int]) -> Finding:
    mend = "Make a folder named 1 for it"
    mend += (
        ", empty (git keeps none: put a .gitkeep into it)."
        if model.is_ensemble
        else " with the model's file in it."
    )
    what = "no version folder"
    if found:
        what = f"its version_policy picks none of the versions there ({', '.join(map(str, found))})"
        mend = "Change version_policy, or leave it out."
    else:
        if (model.folder / "model.py").is_file():
            what, mend = (
                "model.py is not in a version folder",
                "Make a folder named 1, and move model.py into it.",
            )
        others = [entry.name for entry in _entries(model.folder) if entry.is_dir()]
        if others:
            what += f"; the folders there are {', '.join(others[:6])}"
    return Finding(
        "error", "version-none", model.name, what, "A model needs a version that its policy picks to load; a "
        "version is a folder with a number from 1 as its name.", mend, shown_path(model.folder),
    )  # fmt: skip


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "__")))
    except OSError:
        return []


def _of_version(model: Material, folder: Path) -> Iterator[Finding]:
    named = model.config.default_model_filename
    known = model.config.backend in _LOAD_FILE
    if named and known and not model.problem and not (folder / named).exists():
        there = [entry.name for entry in _entries(folder)]
        yield Finding(
            "error", "file-missing", model.name,
            f"{named} is missing"
            + (f"; there is {', '.join(there[:4])}" if there else ": the folder is empty"),
            f"The {model.config.backend} backend loads this file.",
            f"Put {named} there" + (", or name the file by default_model_filename." if there else "."),
            shown_path(folder),
        )  # fmt: skip
    for file in pointers_in(folder):
        yield Finding(
            "error", "file-lfs-pointer", model.name, f"{file.name} is a pointer of git-LFS, not the file",
            "It has a few lines of text about a file that git did not bring.", "Run `git lfs pull`.",
            shown_path(file),
        )  # fmt: skip
