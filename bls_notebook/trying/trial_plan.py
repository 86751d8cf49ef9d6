"""The first step of a trial: decide from the files which models to load, in which order, and which to stub, and why."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from bls_notebook.backends import find_backend
from bls_notebook.checking.discovery import config_files, is_model
from bls_notebook.engine import BLSError, ConfigError
from bls_notebook.extending import Host
from bls_notebook.records import MAX_CONFIG, first_line, grouped, listed, shortened, source_text, visible
from bls_notebook.repository import (
    VALUES,
    Stub,
    Values,
    backend_of,
    calls_of,
    gpus_in,
    in_order,
    main_file,
    python_backend,
    runs_python,
    sources_in,
)
from bls_notebook.repository.config import ModelConfigMessage, fill_templates, filled_config, parse_pbtxt
from bls_notebook.repository.source import (
    ModelSource,
    backend_folders,
    is_pointer,
    misnamed_folders,
    model_names,
    name_problem,
    shown_path,
    version_folders,
)

from .failure_reasons import FailureReason, missing_file, reason_of
from .hub_offline import uses_hub

_CUDA = re.compile(r"""["']cuda(:\d)?["']|\.cuda\(\)""")
_LISTED, _FEW = 24, 8
_PATH = re.compile(r"dir$|path$|file$", re.IGNORECASE)  # keys of paths, without which models often cannot load


@dataclass(frozen=True)
class TrialOptions:
    """Options of `try_repository`; see its parameters."""

    folder: Path  # of the models
    project: Path  # the outermost folder that belongs to the project
    fill: Mapping[str, object]
    config_name: str
    values: Values
    seed: int
    latency: Mapping[str, float]
    recorded: Mapping[str, Any]
    real: Collection[str] | None
    load_timeout: float
    in_kernel: bool = False
    environment: str = ""  # of Python models, made by `project_environment`

    @property
    def isolation(self) -> str:
        """The place where the models run."""
        return "kernel" if self.in_kernel else "process"

    def check(self, names: Collection[str]) -> None:
        """Raise a BLSError if an option is invalid; `names` are the models."""
        unknown = next((name for name in (*self.latency, *(self.real or ())) if name not in names), None)
        slow = next((name for name, seconds in self.latency.items() if not 0 <= seconds < 3600), None)
        problem = ""
        if self.values not in VALUES:
            problem = f"values: got {self.values!r}, expected {' or '.join(map(repr, VALUES))}"
        elif isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            problem = f"seed: got {self.seed!r}, expected a whole number, at least 0"
        elif not self.load_timeout > 0:
            problem = f"load_timeout: got {self.load_timeout!r}, expected more than 0 s"
        elif unknown is not None:
            option = "latency" if unknown in self.latency else "real"
            problem = f"{option}: there is no model {unknown!r}; the models are {', '.join(sorted(names))}"
        elif slow is not None:
            problem = f"latency of {slow!r}: got {self.latency[slow]!r}, expected at least 0 s and less than 3600 s"
        if problem:
            raise BLSError(f"try: {problem}")

    def stub(self, name: str) -> Stub:
        """Return the settings of a model's stub."""
        outputs = self.recorded.get(name, {})
        if hasattr(outputs, "as_numpy"):
            outputs = outputs.as_numpy()
        return Stub(values=self.values, seed=self.seed, seconds=self.latency.get(name, 0.0), recorded=outputs)


class PreparedModel(NamedTuple):
    """The source to load, with descriptions of its changes; a server also needs the folder `missing_version`."""

    source: ModelSource
    changes: tuple[str, ...]
    missing_version: str
    refused: str = ""  # the change of a name that a server refuses


@dataclass(frozen=True)
class ModelPlan:
    """Facts about a model from its files, and how to load it."""

    name: str
    folder: Path  # on disk
    prepared: PreparedModel
    config: ModelConfigMessage
    backend: str
    calls: Collection[str]
    named: Collection[str]  # callees in its requests, including unknown models
    sources: tuple[str, ...]  # of its Python code
    may_run: bool  # the user allows its code
    obstacle: FailureReason | None = None  # why a stub replaces it, if its files show that

    @property
    def runs_code(self) -> bool:
        """It has Python code that runs in this process."""
        return self.may_run and bool(self.sources) and self.obstacle is None

    @property
    def uses_hub(self) -> bool:
        """Its sources fetch from Hugging Face's hub."""
        return any(map(uses_hub, self.sources))

    @property
    def gpus(self) -> int:
        """The number of GPUs that the real model needs; 1 if it uses CUDA without testing that it is available."""
        if not self.may_run or not (self.runs_code or find_backend(self.backend)):
            return 0
        takes_cuda = any(_CUDA.search(text) and "is_available" not in text for text in self.sources)
        return max(gpus_in(self.config), int(takes_cuda))


@dataclass(frozen=True)
class TrialPlan:
    """The models of a trial in the order of loading, callees first."""

    options: TrialOptions
    private: Path  # a folder for version folders
    models: Mapping[str, ModelPlan]
    absent: Mapping[str, FailureReason]  # invalid names and configurations, and callees without a folder
    notes: tuple[str, ...] = ()

    @property
    def calls(self) -> dict[str, Collection[str]]:
        """The callees of each model."""
        return {name: model.calls for name, model in self.models.items()}


def plan_trial(host: Host, options: TrialOptions) -> TrialPlan:
    """Read the configurations and sources of all models; run nothing, and write to private folders only."""
    path, names, notes = _models_in(options.folder, options.fill, host)
    options.check(names)
    host.add_folder(path)
    private = host.add_folder()
    notes += _template_notes(((path / name).resolve() for name in names), options.fill)
    models: dict[str, ModelPlan] = {}
    absent: dict[str, FailureReason] = {}
    for name, why in misnamed_folders([path]).items():
        remedy = "rename it: use letters, digits, '_', '-' and '.'"
        absent[name] = FailureReason(f"no model can have the folder's name: {why}", remedy)
    for name in names:
        try:
            models[name] = _plan_model(host, path / name, options, private, names)
        except (BLSError, OSError) as error:
            why = first_line(str(error), 400).removeprefix(f"model '{name}': ")
            host.failed(name, why)
            absent[name] = reason_of("config", name, why=why)
    unknown = grouped((name, model.name) for model in models.values() for name in model.named if name not in names)
    for name, callers in unknown.items():
        absent[name] = reason_of("absent", name, callers=", ".join(sorted(callers)))
    order = in_order({name: model.calls for name, model in models.items()})
    return TrialPlan(options, private, {name: models[name] for name in order}, absent, notes)


def _plan_model(host: Host, path: Path, options: TrialOptions, private: Path, known: Collection[str]) -> ModelPlan:
    name, folder = path.name, path.resolve()
    prepared = prepare(host.source(name), options, private)
    config = prepared.source.parsed_config()
    backend = backend_of(config, prepared.source.folder)
    sources = tuple(sources_in(folder)) if runs_python(backend) else ()
    named, calls = calls_of(name, config, backend, sources, known)
    may_run = options.real is None or name in options.real
    plan = ModelPlan(name, folder, prepared, config, backend, calls, named, sources, may_run)
    return replace(plan, obstacle=_obstacle(host, plan))


def prepare(source: ModelSource, options: TrialOptions, private: Path) -> PreparedModel:
    """Return a model's source with its missing parts: a configuration, its name, a version folder.

    The configuration is ``configs/NAME.pbtxt`` if there is that file, as with a server's ``--model-config-name=NAME``.
    Git drops empty version folders; `private` is a folder for replacements, because a trial does not write to others.
    """
    changes: list[str] = []
    missing_version = refused = ""
    config, folder = source.config, source.folder
    chosen = folder / "configs" / f"{options.config_name}.pbtxt"
    is_chosen = bool(options.config_name) and chosen.is_file() and not source.config_is_json
    files = [chosen] if is_chosen else config_files(folder)
    if files and (is_chosen or config is None):
        config, _ = filled_config(source_text(files[0], MAX_CONFIG), options.fill, source.name)
        changes.append(f"{files[0].relative_to(folder)} is used as its config.pbtxt")
    if config is not None and not version_folders(folder):
        version, where = private / source.name / "1", shown_path(folder.resolve() / "1")
        version.parent.mkdir(exist_ok=True)
        if code := [file.parent for pattern in ("model.py", "*/model.py") for file in sorted(folder.glob(pattern))][:1]:
            place = "beside its config.pbtxt" if code == [folder] else f"in {code[0].name}"
            changes.append(f"its files are {place}; a server needs them in `{where}`")
            with suppress(OSError):  # the link exists, or this user may not create it
                version.symlink_to(code[0], target_is_directory=True)
        else:
            missing_version = where
        version.mkdir(exist_ok=True)
        folder = version.parent
    with suppress(BLSError):  # the load reports it
        parsed = replace(source, config=config).parsed_config()
        if parsed.name not in ("", source.name):
            name = shortened(parsed.name, 100)
            refused = f'its config.pbtxt has name: "{name}", which a server refuses: use the name of the folder'
            changes.append(refused)
            parsed.name = source.name
            config = parsed
    origin = shown_path(source.folder.resolve()) if source.folder.is_symlink() else source.origin
    source = replace(source, config=config, folder=folder, origin=origin)
    return PreparedModel(source, tuple(changes), missing_version, refused)


def _obstacle(host: Host, plan: ModelPlan) -> FailureReason | None:
    """Return the reason, known from its files, why a model cannot load; None if it may."""
    name, backend, config = plan.name, plan.backend, plan.config
    if backend == "ensemble":
        return None  # this depends on its steps
    if not plan.may_run:
        return reason_of("kept out", name)
    files = plan.prepared.source.folder
    file = main_file(config, backend, files)
    exists = file is not None and file.exists()
    shown = None if file is None else plan.folder / file.relative_to(files)
    if find_backend(backend) is None:
        repository = host.repository
        folders = backend_folders(repository.paths, repository.backend_directory)
        with suppress(Exception):
            if python_backend(config, folders) is not None:
                return None
        lacks = "" if exists or shown is None else f", and {shown.parent.name}/{shown.name} is missing"
        return reason_of("backend" if backend else "backend:unknown", name, backend=backend, lacks=lacks)
    if file is not None and shown is not None:
        is_empty = exists and backend != "python" and file.is_file() and file.stat().st_size == 0
        if not exists or is_empty or is_pointer(file):
            return missing_file(name, shown, exists and not is_empty, backend == "python")
    return None


def _models_in(path: Path, fill: Mapping[str, object], host: Host) -> tuple[Path, list[str], tuple[str, ...]]:
    """Return the folder to load models from, the names of its models, and notes."""
    notes: tuple[str, ...] = ()
    with suppress(OSError):  # a file cannot be read, or this user may not create links
        if names := _names_by_others(path, fill):
            view = host.add_folder()
            for entry in sorted(path.iterdir()):
                (view / names.get(entry.name, entry.name)).symlink_to(entry.resolve(), entry.is_dir())
            renamed = ", ".join(f"{shown_path(path / folder)} is {name}" for folder, name in sorted(names.items()))
            notes += (f"models have the names from their configurations, because other models use these: {renamed}",)
            path = view
    folders = model_names([path])
    models = [name for name in folders if is_model(path / name)]
    if others := [name for name in folders if name not in models]:
        few = listed(others, _FEW)
        notes += (f"folders without models (neither config.pbtxt nor a version with a model's file): {few}",)
    return path, models, notes


def _names_by_others(path: Path, fill: Mapping[str, object]) -> dict[str, str]:
    """Return, by folder, the names in configurations that differ from the folder's and that other models use.

    A server refuses such a folder, and projects rename it with a script before they start the server.
    """
    own, texts = dict[str, str](), dict[str, list[str]]()
    for folder in model_names([path]):
        config = _config_text(path / folder)
        texts[folder] = [config, *sources_in(path / folder)]
        with suppress(BLSError):
            filled = fill_templates(config, fill, defaults=True, model=folder).text
            own[folder] = str(parse_pbtxt(filled, model=folder).name)
    counts = Counter(own.values())
    return {
        folder: name for folder, name in own.items()
        if counts[name] == 1 and name not in texts and not name_problem(name)
        and any(f'"{name}"' in text or f"'{name}'" in text for f in texts if f != folder for text in texts[f])
    }  # fmt: skip


def _template_notes(folders: Iterable[Path], fill: Mapping[str, object]) -> tuple[str, ...]:
    """Return a note on filled templates and one on unfilled ones."""
    filled: dict[str, None] = {}  # ordered sets
    unfilled: dict[str, None] = {}
    for folder in folders:
        with suppress(ConfigError):  # reported with its model
            text = _config_text(folder)
            result = fill_templates(text, fill, environment=os.environ, defaults=True, model=folder.name)
            filled |= dict.fromkeys(f"{visible(f.key)}={visible(f.value)} ({f.origin})" for f in result.fills)
            unfilled |= dict.fromkeys(visible(template.key) for template in result.open)
    out = []
    if filled:
        out.append(f"templates were filled: {listed(filled, _LISTED)}")
    if unfilled:
        paths_first = sorted(unfilled, key=lambda key: _PATH.search(key) is None)
        out.append(f"templates without a value: {listed(paths_first, _FEW)}; `--fill KEY=VALUE` sets one")
    return tuple(out)


def _config_text(folder: Path) -> str:
    """Return the text of a model's configuration; empty if there is none."""
    return "".join(source_text(file, MAX_CONFIG) for file in config_files(folder)[:1])
