"""`Preparing`: other people's models, made ready to be loaded; nothing is written to their folders.

A model's config.pbtxt may be there under another name, its empty version folder was kept by no Git, and what
asks for a GPU may have to go without. Each of these is noted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from bls_notebook.engine.errors import BLSError, ConfigError
from bls_notebook.records.quantities import listed
from bls_notebook.records.visible import visible
from bls_notebook.repository.config import ModelConfigMessage, model_config_pb2
from bls_notebook.repository.config.templates import fill_templates, filled_config
from bls_notebook.repository.source.layout import config_text, shown_path, version_folders
from bls_notebook.repository.source.model_source import ModelSource
from bls_notebook.repository.source.repository_folders import config_files

_LISTED, _FEW = 24, 8
_PATH = re.compile(r"dir$|path$|file$", re.IGNORECASE)  # what a model can hardly do without


class Preparing:
    """Called with the source of each model of a folder, it returns the one to load.

    `new_folder` returns a new private folder.
    """

    def __init__(self, new_folder: Callable[[], Path], fill: Mapping[str, object]) -> None:
        self._new_folder = new_folder
        self._fill = fill
        self._made: dict[str, Path] = {}  # by the model's own folder
        self.on_cpu: set[str] = set()  # models whose instances are to be there, whatever they ask for
        self.notes: dict[str, str] = {}  # what was done for a model
        self.without_version: dict[str, str] = {}  # where a server needs an empty folder that is missing

    def __call__(self, source: ModelSource) -> ModelSource:
        """Return the source with what it lacks."""
        notes: list[str] = []
        config = source.config
        if config is None:
            found = config_files(source.folder)
            if found:
                text = found[0].read_text(encoding="utf-8", errors="replace")
                config, _ = filled_config(text, self._fill, source.name)
                notes.append(f"{found[0].relative_to(source.folder)} is taken for its config.pbtxt")
        folder = source.folder
        if config is not None and not version_folders(folder):
            folder = self._with_version(source.name, folder)
            where = shown_path(source.folder / "1")
            if (source.folder / "model.py").is_file():
                notes.append(f"its files lie beside its config.pbtxt; a server wants them in `{where}`")
            else:
                self.without_version[source.name] = where
        written = _name_in(replace(source, config=config))
        if written not in ("", source.name):
            config = _renamed(replace(source, config=config))
            told = (
                f'its config.pbtxt says name: "{written}", which no server takes: make it that of the folder'
            )
            notes.append(told)
        if source.folder.is_symlink():
            source = replace(source, origin=shown_path(source.folder.resolve()))
        if source.name in self.on_cpu:
            config = _on_cpu(replace(source, config=config))
            notes.append("its instances are on the CPU: on a simulated GPU it did not load")
        self.notes[source.name] = "; ".join(notes)
        return replace(source, config=config, folder=folder)

    def _with_version(self, name: str, folder: Path) -> Path:
        key = str(folder)
        if key not in self._made:
            made = self._new_folder() / name
            made.mkdir()
            try:
                if not (folder / "model.py").is_file():
                    raise OSError
                (made / "1").symlink_to(folder, target_is_directory=True)
            except OSError:
                (made / "1").mkdir()
            self._made[key] = made
        return self._made[key]


def _name_in(source: ModelSource) -> str:
    """The name that a configuration gives its model; empty where there is none."""
    try:
        return str(source.parsed_config().name)
    except BLSError:
        return ""


def _renamed(source: ModelSource) -> ModelConfigMessage:
    config: ModelConfigMessage = source.parsed_config()
    config.name = source.name
    return config


def _on_cpu(source: ModelSource) -> object:
    try:
        config: ModelConfigMessage = source.parsed_config()
    except BLSError:
        return source.config
    kind = model_config_pb2().ModelInstanceGroup.KIND_CPU
    for group in config.instance_group or [config.instance_group.add()]:
        group.kind = kind
        group.ClearField("gpus")
    return config


def told_of_fills(folders: Iterable[Path], values: Mapping[str, object]) -> tuple[str, ...]:
    """Return a line for what was filled and one for what is still open; none where there is no template."""
    filled: dict[str, None] = {}  # in their order
    still: dict[str, None] = {}
    for folder in folders:
        text = config_text(folder)
        if text is None and (files := config_files(folder)):
            text = files[0].read_text("utf-8", "replace")
        if not isinstance(text, str):
            continue
        try:
            found = fill_templates(text, values, environment=os.environ, defaults=True, model=folder.name)
        except ConfigError:  # which is what its model's row says
            continue
        filled |= dict.fromkeys(f"{visible(f.key)}={visible(f.value)} ({f.origin})" for f in found.fills)
        still |= dict.fromkeys(visible(template.key) for template in found.open)
    out = []
    if filled:
        out.append(f"templates were filled: {listed(filled, _LISTED)}")
    if still:
        paths_first = sorted(still, key=lambda key: _PATH.search(key) is None)
        out.append(f"templates left in texts: {listed(paths_first, _FEW)}; `--fill KEY=VALUE` fills one")
    return tuple(out)
