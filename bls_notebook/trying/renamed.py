"""Models whose configuration gives them another name than their folder: served by the one that others use.

A server refuses them; projects that keep them so have a script that copies each folder under its own name.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bls_notebook.engine.errors import BLSError
from bls_notebook.repository.call_order import sources_in
from bls_notebook.repository.config import parse_pbtxt
from bls_notebook.repository.config.templates import fill_templates
from bls_notebook.repository.source.layout import model_names, shown_path
from bls_notebook.repository.source.names import check_model_name
from bls_notebook.repository.source.repository_folders import config_files


def other_names(folder: Path, values: Mapping[str, object]) -> dict[str, str]:
    """Return the names that others use for models of a repository, by the names of their folders."""
    folders = model_names([folder])
    texts = {name: _texts(folder / name) for name in folders}
    given = {name: _own_name(config[0], name, values) for name, (config, _) in texts.items() if config}
    out = {}
    for name, own in given.items():
        others = (text for other, parts in texts.items() if other != name for text in (*parts[0], *parts[1]))
        wanted = own and own not in folders and list(given.values()).count(own) == 1
        if wanted and any(f'"{own}"' in text or f"'{own}'" in text for text in others):
            out[name] = own
    return out


def with_other_names(folder: Path, values: Mapping[str, object]) -> tuple[Path, tuple[str, ...]]:
    """Return the folder to take the models from, and what there is to say of it; `values` fill templates."""
    names = other_names(folder, values)
    if not names:
        return folder, ()
    try:
        view = under_other_names(folder, names)
    except OSError:  # where links are not for everybody
        return folder, ()
    told = ", ".join(f"{shown_path(folder / there)} is {name}" for there, name in sorted(names.items()))
    return view, (f"models go by the name in their configuration, which others call them by: {told}",)


def under_other_names(folder: Path, names: Mapping[str, str]) -> Path:
    """Return a folder of links to the models of a repository, some by another name; OSError without links.

    It goes away when Python ends.
    """
    view = Path(tempfile.mkdtemp(prefix="bls_notebook-"))
    atexit.register(shutil.rmtree, view, ignore_errors=True)
    for entry in sorted(folder.iterdir()):
        (view / names.get(entry.name, entry.name)).symlink_to(entry.resolve(), entry.is_dir())
    return view


def _texts(folder: Path) -> tuple[list[str], list[str]]:
    configs = []
    for file in config_files(folder)[:1]:
        try:
            configs.append(file.read_text("utf-8", "replace"))
        except OSError:
            continue
    return configs, list(sources_in(folder))


def _own_name(config: str, folder: str, values: Mapping[str, object]) -> str:
    """The name that a configuration gives, where that is another than the folder's."""
    try:
        filled = fill_templates(config, values, defaults=True, model=folder)
        name = str(parse_pbtxt(filled.text, model=folder).name)
        check_model_name(name)
    except BLSError:
        return ""
    return "" if name == folder else name
