"""Prepare models of any repository for loading, without writing to their folders.

Typical obstacles: config.pbtxt has another file name, Git dropped an empty version folder, or a GPU is missing. Each
change becomes a note. If config.pbtxt names the model differently from its folder, and other models use that name, the
model gets it: a server refuses such a folder, and projects rename it with a script before they start the server.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from bls_notebook.checking.discovery import config_files, is_model
from bls_notebook.engine import BLSError, ConfigError
from bls_notebook.records import MAX_CONFIG, listed, shortened, source_text, visible
from bls_notebook.repository import sources_in
from bls_notebook.repository.config import (
    ModelConfigMessage,
    fill_templates,
    filled_config,
    model_config_pb2,
    parse_pbtxt,
)
from bls_notebook.repository.source import (
    ModelSource,
    check_model_name,
    config_text,
    model_names,
    shown_path,
    version_folders,
)


def model_folders(
    path: Path, values: Mapping[str, object], new_folder: Callable[[], Path]
) -> tuple[Path, list[str], tuple[str, ...]]:
    """Return the folder to load models from, the names of its models, and notes; `values` fill templates."""
    notes: tuple[str, ...] = ()
    with suppress(OSError):  # a file cannot be read, or this user may not create links
        if names := _names_by_others(path, values):
            view = new_folder()
            for entry in sorted(path.iterdir()):
                (view / names.get(entry.name, entry.name)).symlink_to(entry.resolve(), entry.is_dir())
            renamed = ", ".join(f"{shown_path(path / folder)} is {name}" for folder, name in sorted(names.items()))
            notes += (f"models have the names from their configurations, because other models use these: {renamed}",)
            path = view
    folders = model_names([path])
    models = [name for name in folders if is_model(path / name)]
    others = [name for name in folders if name not in models]
    if others:
        few = listed(others, _FEW)
        notes += (f"folders without models (neither config.pbtxt nor a version with a model's file): {few}",)
    return path, models, notes


def _names_by_others(folder: Path, values: Mapping[str, object]) -> dict[str, str]:
    """Return, by folder, the names in configurations that differ from the folder's and that other models use."""
    configs, texts = {}, {}
    for name in model_names([folder]):
        files = config_files(folder / name)[:1]
        configs[name] = source_text(files[0], MAX_CONFIG) if files else ""
        texts[name] = [configs[name], *sources_in(folder / name)]
    own = {name: _own_name(config, name, values) for name, config in configs.items()}
    out = {}
    for name, other_name in own.items():
        if other_name and other_name not in configs and list(own.values()).count(other_name) == 1:
            others = (text for other, parts in texts.items() if other != name for text in parts)
            if any(f'"{other_name}"' in text or f"'{other_name}'" in text for text in others):
                out[name] = other_name
    return out


def _own_name(config: str, folder: str, values: Mapping[str, object]) -> str:
    """Return the name in a configuration if it differs from the folder's, else an empty string."""
    try:
        name = str(parse_pbtxt(fill_templates(config, values, defaults=True, model=folder).text, model=folder).name)
        check_model_name(name)
    except BLSError:
        return ""
    return "" if name == folder else name


_LISTED, _FEW = 24, 8
_PATH = re.compile(r"dir$|path$|file$", re.IGNORECASE)  # keys of paths, without which models often cannot load


class ModelPreparation:
    """Hook that gets the source of each model before it loads, and returns the source to load.

    `new_folder` creates a private folder; `fill` has the values of templates. A model's configuration is
    ``configs/NAME.pbtxt`` if it has that file, as with a server's ``--model-config-name``; NAME is `config_name`.
    """

    def __init__(self, new_folder: Callable[[], Path], fill: Mapping[str, object], config_name: str) -> None:
        self._new_folder = new_folder
        self._fill = fill
        self._config_name = config_name
        self._folders: dict[str, Path] = {}  # private folders, by the model's own folder
        self.on_cpu: set[str] = set()  # models whose instances run on the CPU despite their configuration
        self.notes: dict[str, str] = {}  # descriptions of changes, by model
        self.without_version: dict[str, str] = {}  # missing version folders, by model

    def __call__(self, source: ModelSource) -> ModelSource:
        """Return the source with what was missing: a configuration, a version folder, instances on the CPU."""
        notes: list[str] = []
        config = source.config
        chosen = source.folder / "configs" / f"{self._config_name}.pbtxt"
        is_chosen = bool(self._config_name) and chosen.is_file() and not source.config_is_json
        if config is None or is_chosen:
            files = [chosen] if is_chosen else config_files(source.folder)
            if files:
                config, _ = filled_config(source_text(files[0], MAX_CONFIG), self._fill, source.name)
                notes.append(f"{files[0].relative_to(source.folder)} is used as its config.pbtxt")
        folder = source.folder
        if config is not None and not version_folders(folder):
            folder = self._with_version(source.name, folder)
            where = shown_path(source.folder / "1")
            if (source.folder / "model.py").is_file():
                notes.append(f"its files are beside its config.pbtxt; a server needs them in `{where}`")
            else:
                self.without_version[source.name] = where
        with suppress(BLSError):  # the load reports it
            parsed = replace(source, config=config).parsed_config()
            if parsed.name not in ("", source.name):
                name = shortened(parsed.name, 100)
                notes.append(f'its config.pbtxt has name: "{name}", which a server refuses: use the name of the folder')
                parsed.name = source.name
                config = parsed
        if source.folder.is_symlink():
            source = replace(source, origin=shown_path(source.folder.resolve()))
        if source.name in self.on_cpu:
            with suppress(BLSError):
                config = _on_cpu(replace(source, config=config).parsed_config())
            notes.append("its instances are on the CPU, because it did not load on a simulated GPU")
        self.notes[source.name] = "; ".join(notes)
        return replace(source, config=config, folder=folder)

    def missing_folders(self, names: Collection[str]) -> tuple[str, ...]:
        """Return a note with a command that creates the missing version folders of these models."""
        missing = [folder for name, folder in self.without_version.items() if name in names]
        if not missing:
            return ()
        line = f"`!mkdir {' '.join(missing)}`"
        return (f"version folders are missing, because Git stores no empty folders; a server needs them: {line}",)

    def _with_version(self, name: str, folder: Path) -> Path:
        key = str(folder)
        if key not in self._folders:
            private = self._new_folder() / name
            private.mkdir()
            try:
                if not (folder / "model.py").is_file():
                    raise OSError
                (private / "1").symlink_to(folder, target_is_directory=True)
            except OSError:
                (private / "1").mkdir()
            self._folders[key] = private
        return self._folders[key]


def _on_cpu(config: ModelConfigMessage) -> ModelConfigMessage:
    for group in config.instance_group or [config.instance_group.add()]:
        group.kind = model_config_pb2().ModelInstanceGroup.KIND_CPU
        group.ClearField("gpus")
    return config


def template_notes(folders: Iterable[Path], values: Mapping[str, object]) -> tuple[str, ...]:
    """Return a note on filled templates and one on unfilled ones."""
    filled: dict[str, None] = {}  # ordered sets
    unfilled: dict[str, None] = {}
    for folder in folders:
        text = config_text(folder)
        if text is None and (files := config_files(folder)):
            text = source_text(files[0], MAX_CONFIG)
        if not isinstance(text, str):
            continue
        try:
            result = fill_templates(text, values, environment=os.environ, defaults=True, model=folder.name)
        except ConfigError:  # reported with its model
            continue
        filled |= dict.fromkeys(f"{visible(f.key)}={visible(f.value)} ({f.origin})" for f in result.fills)
        unfilled |= dict.fromkeys(visible(template.key) for template in result.open)
    out = []
    if filled:
        out.append(f"templates were filled: {listed(filled, _LISTED)}")
    if unfilled:
        paths_first = sorted(unfilled, key=lambda key: _PATH.search(key) is None)
        out.append(f"templates without a value: {listed(paths_first, _FEW)}; `--fill KEY=VALUE` sets one")
    return tuple(out)
