"""Create the instances of a model version, and change their number while the version serves.

A Python-based backend is a folder: `<backend folder>/<name>/model.py` runs every model whose backend has that name.

Guarantees: an instance that is created and then dropped is finalized, whatever its `finalize` raises. Each instance has
its own modules. When the instance groups change, an instance that still fits (equal in all but the name and count of
its group) keeps running with its state. Nothing in service changes before `commit`.

Mirrors core/src/backend_model.cc (UpdateInstanceGroup, PrepareInstances, GetBackendLibraryProperties): of equal
instances the last one stays and keeps its name, and new ones receive the configuration of the first load.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import ref

from bls_notebook.backends.processes.backend import ModelCode, ModelProcess, ProcessModel
from bls_notebook.backends.processes.environments import Environment, environment_at, environment_path, own_environment
from bls_notebook.backends.protocol import (
    BackendError,
    BackendInstance,
    BackendModel,
    OpenModel,
    VersionFiles,
    backend_names,
    find_backend,
    has_runtime,
)
from bls_notebook.backends.python import PythonModel
from bls_notebook.devices.device import Device
from bls_notebook.devices.registry import gpus
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.model_spec import InstanceSpec, ModelSpec
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.errors import ConfigError
from bls_notebook.engine.exception_text import describe
from bls_notebook.engine.metrics import separate_metrics
from bls_notebook.engine.model_code import Completing, Initializing, as_model
from bls_notebook.engine.waiting.home_threads import HomeStep, HomeThread
from bls_notebook.engine.waiting.parker import Parker
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.stub_modules import API
from bls_notebook.progress import stepped
from bls_notebook.records.measurements import grouped
from bls_notebook.repository.config import ModelConfigMessage, auto_complete, environment_parameter, model_spec
from bls_notebook.repository.modules.module_home import ModuleHome, noted_source
from bls_notebook.repository.source.model_folders import shown_path
from bls_notebook.repository.source.model_source import ModelSource

from .warmup import warm_up

log = logging.getLogger("bls_notebook")
RUNTIME = "model.py"  # also the value of `runtime` in the configuration of a model of a Python-based backend


def python_backend(config: ModelConfigMessage, folders: Sequence[Path]) -> Path | None:
    """Return the folder of a model's Python-based backend; None for other backends."""
    name, model, runtime = str(config.backend), config.name, config.runtime
    if find_backend(name) is not None and runtime != RUNTIME:
        return None
    candidates = [folder / name for folder in folders]
    if runtime not in ("", RUNTIME):
        reason = f"unable to find backend library '{runtime}' for model '{model}'"
        raise _not_found(reason, candidates)
    # The name must not be a path that leads to another folder.
    for folder in candidates if Path(name).name == name else ():
        if (folder / RUNTIME).is_file():
            return folder
    if runtime and has_runtime(name, runtime):
        return None
    if runtime:
        reason = f"unable to find Python backend based backend library '{runtime}' for model '{model}'"
        raise _not_found(reason, [folder / RUNTIME for folder in candidates])
    error = ConfigError(
        f"model {model!r}: there is no backend {name!r}: available are {', '.join(backend_names())}, and there is no "
        f"Python-based backend ({', '.join(shown_path(f / RUNTIME) for f in candidates)}); change "
        'backend: "..." in its configuration, or pass the folder of backends as backend_directory'
    )
    error.reason = (
        f"Invalid argument: unable to find backend library for backend '{name}', try specifying runtime on "
        "the model configuration."
    )
    raise error


def _not_found(words: str, paths: Sequence[Path]) -> BackendError:
    searched = " ".join(f"'{path}'" for path in paths)
    return BackendError(f"{words}, searched: {searched}", "Invalid argument")


_Result = TypeVar("_Result")


class ModelHalf:
    """The model's side of one instance of `model`, which runs at the instance's home.

    Its methods are the steps of a home. `execute` is the model's own. Arguments and results are data, so that a home
    may be another process.

    `open_files` opens the files of the version: the first instance calls it (`complete`), the others use its `opened`.
    """

    opened: BackendModel | None = None
    process: ModelProcess | None = None  # that runs the model's code, if this one does not
    home: Callable[[], HomeThread | None]

    def __init__(
        self,
        server: Server,
        name: str,
        folder: str,
        model: str,
        open_files: Callable[[ModelConfigMessage], BackendModel],
    ) -> None:
        self._server = server
        self._name, self._folder, self._model = name, folder, model
        self._open_files = open_files
        self._metrics = separate_metrics.get()
        self.instance: BackendInstance | None = None  # of the backend, once initialized
        self.modules: Any = None  # `ModuleHome` of the instance's modules, if it has any
        self.asks_ready = self.takes_gpu = self.is_async = False

    def complete(self, config: ModelConfigMessage) -> ModelConfigMessage:
        """Open the version's files, and return its configuration, completed by the model's code."""

        def complete() -> ModelConfigMessage:
            self.opened = self._open_files(config)
            return auto_complete(config, self.opened)

        return self._as_model(complete, Completing)

    def initialize(self, arguments: dict[str, str]) -> None:
        """Create the backend's instance, which runs the model's `initialize`."""
        assert self.opened is not None
        separate_metrics.set(self._metrics)  # in the context that lasts as long as the home
        self._name = arguments["model_instance_name"]
        self.instance = instance = self._as_model(partial(self.opened.make_instance, arguments))
        self.asks_ready = getattr(instance, "asks_ready", False)
        self.takes_gpu = getattr(instance, "takes_gpu", False)
        self.execute = instance.execute
        self.is_async = instance.is_async

    def finalize(self) -> None:
        """Run the model's `finalize`, which releases its memory; do nothing if there is no instance."""
        instance, self.instance = self.instance, None
        try:
            if instance is not None:
                try:
                    self._server.keep_metrics(self._name, self._folder)
                    self._as_model(instance.finalize)
                finally:
                    del self.execute
        finally:
            if self.process is not None:
                self.process.close()

    def revive(self) -> None:
        """Start the process again after it has died."""
        if self.process is not None:
            self._as_model(self.process.revive)

    def new_process(self, environment: Environment, code: ModelCode) -> ModelProcess:
        """Return the process that runs the code of this instance; it starts when the files are opened."""

        def lost(then: Callable[[], object]) -> None:
            def ended(step: HomeStep) -> None:
                if step.error is not None:
                    log.error("%s cannot be started again: %s", self._name, describe(step.error).message)
                    step.error = None
                then()

            home = self.home()
            if home is not None:
                home.begin("revive", then=ended)

        self.process = ModelProcess(self._name, environment, code, lost)
        return self.process

    def _as_model(self, call: Callable[[], _Result], kind: type[Initializing] = Initializing) -> _Result:
        caller = kind(self._server, self._name, self._folder, self._model)
        caller.modules, caller.half = self.modules, self
        try:
            return as_model(caller, call)
        finally:
            self.modules = caller.modules  # set by the backend that opens the files

    @property
    def model(self) -> Any:
        """The instance of the model's class; None if the backend has none."""
        return getattr(self.instance, "model", None)

    def ready(self) -> bool:
        """Return whether the instance can serve."""
        return self.instance is not None and self._as_model(self.instance.ready)


class InstanceMaker:
    """Creates the instances of one version of a model; `folder` is the version's folder."""

    def __init__(self, server: Server, source: ModelSource, version: int, folder: Path) -> None:
        self._server = server
        self._source = source
        self._version = version
        self._folder = folder
        self._homes: list[ModuleHome] = []  # of new instances, until a model owns them
        self._imports: dict[str, None] = {}  # warnings about modules that a server would not import
        self._opened: BackendModel | None = None
        self._first: HomeThread | None = None  # of the first instance, which has opened the files

    def complete(self, config: ModelConfigMessage) -> ModelConfigMessage:
        """Open the version's files at the home of its first instance; return the completed configuration.

        Call this first. It sets the configuration's runtime if the backend is Python-based.
        """
        self._first = self._new_home(self._source.model)
        completed: ModelConfigMessage = self._first.call("complete", config)
        self._opened = self._first.half.opened
        return completed

    def _new_home(self, name: str) -> HomeThread:
        half = ModelHalf(self._server, name, str(self._folder), self._source.model, self._open)
        half.opened = self._opened
        home = HomeThread(name, half)
        half.home = ref(home)
        return home

    def _open(self, config: ModelConfigMessage) -> BackendModel:
        """Open the model's files with the backend that its configuration names. Called at home."""
        source = self._source
        backend_folder: Path | None = None
        open_model: OpenModel | None
        if source.stub is None:
            backend_folder = python_backend(config, self._server.backend_folders)
            open_model = find_backend(config.backend if backend_folder is None else "python")
            if open_model is PythonModel and self._in_process(config):
                open_model = partial(ProcessModel, partial(self._new_process, config, backend_folder))
        else:
            from bls_notebook.repository.substitution.stub_backend import StubModel  # first needed here

            stub, in_process = source.stub, partial(ProcessModel, partial(self._new_process, config, None))
            if stub.asks is PythonModel and self._in_process(config):
                stub = replace(stub, asks=in_process)
            open_model = partial(StubModel, stub)
        assert open_model is not None  # python_backend raises for unknown backends
        if backend_folder is not None:
            config.runtime = RUNTIME

        def new_modules() -> ModuleHome:
            code = config.default_model_filename if config.backend == "python" else ""
            places = None if source.place is None else {str(self._folder / (code or RUNTIME)): source.place}
            home = ModuleHome(source.model, self._version, self._searched(backend_folder), places)
            self._homes.append(home)
            home.warnings = self._imports
            caller = caller_var.get()
            if isinstance(caller, Initializing):
                caller.modules = home
            return home

        name, file = source.model, config.default_model_filename
        files = VersionFiles(name, self._version, self._folder, file, new_modules, backend_folder, config.runtime)
        return open_model(files)

    def _in_process(self, config: ModelConfigMessage) -> bool:
        """Return whether the instances are processes: if that is wanted, or for an environment that is here."""
        packed = self._environment(config)
        is_here = packed is not None and packed.exists() and hasattr(socket, "SCM_RIGHTS")
        return (self._source.isolation or ("process" if is_here else self._server.isolation)) == "process"

    def _environment(self, config: ModelConfigMessage) -> Path | None:
        return environment_path(environment_parameter(config), self._source.folder)

    def _new_process(self, config: ModelConfigMessage, backend_folder: Path | None) -> ModelProcess:
        """Return the process of the instance that is being made. Called at its home."""
        caller = caller_var.get()
        assert isinstance(caller, Initializing)
        folders = self._searched(backend_folder)
        place, file = self._source.place, self._folder / (config.default_model_filename or RUNTIME)
        sources = {} if place is None else {str(file): noted_source(str(file), place)}
        own_api = any((folder / name).exists() for folder in folders for name in (API, f"{API}.py"))
        half: ModelHalf = caller.half
        packed, prelude = self._environment(config), self._source.prelude
        if packed is not None and not packed.exists() and prelude is not None:
            packed = None  # it may exist on a server; a warning says so
        environment = own_environment() if packed is None else environment_at(packed)
        code = ModelCode([str(folder) for folder in folders], sources, own_api, prelude and prelude())
        return half.new_process(environment, code)

    def _searched(self, backend_folder: Path | None) -> list[Path]:
        return [self._folder, self._source.folder] if backend_folder is None else [backend_folder]

    @property
    def warnings(self) -> tuple[str, ...]:
        """The backend's warnings about settings without effect here and such, a copy of the API, and imports."""
        copies = [f for folder in (self._folder, self._source.folder) for f in (folder / API, folder / f"{API}.py")]
        copy = next((file.name for file in copies if file.exists()), "")
        warning = (
            f"its folder has a copy of {copy}, which a server, too, imports instead of its own; remove it, because it "
            "replaces the API of every release"
        )
        return (*getattr(self._opened, "warnings", ()), *([warning] if copy else []), *self._imports)

    def make(self, wanted: Sequence[InstanceSpec], config: str) -> list[Instance]:
        """Create and initialize instances; if one fails, finalize the others and raise its error."""
        made: list[Instance] = []
        try:
            for spec in stepped(wanted, "initialize", len(wanted) if len(wanted) > 1 else 0, "instance"):
                arguments = {
                    "model_config": config,
                    "model_instance_kind": spec.kind,
                    "model_instance_name": spec.name,
                    "model_instance_device_id": str(spec.device_id),
                    "model_repository": str(self._source.folder),
                    "model_version": str(self._version),
                    "model_name": self._source.model,
                }
                home, self._first = self._first or self._new_home(spec.name), None
                limiter, limited = self._server.rate_limiter, None
                try:
                    if limiter is not None and not spec.passive:
                        limited = limiter.register(self._source.model, spec.rate_limiter, spec.device_id)
                    home.call("initialize", arguments)
                except BaseException:
                    if limiter is not None and limited is not None:
                        limiter.unregister(limited)
                    home.begin("finalize", then=lambda step: None)  # if it continues after Ctrl-C, and ends well
                    home.stop()
                    raise
                instance = Instance(spec.name, home.half, *_device_of(spec), spec, home)
                instance.modules = modules = home.half.modules
                if limited is not None:
                    instance.limited, limited.instance = limited, instance
                if modules is not None:
                    modules.instance = instance
                made.append(instance)
        except BaseException:
            self.give_up(made)
            raise
        return made

    def give_up(self, made: Sequence[Instance]) -> None:
        """Finalize instances that no model owns, and forget their modules."""
        finalized = [Parker() for _ in made]
        for instance, parker in zip(made, finalized, strict=True):
            instance.close(lambda error, parker=parker: parker.unpark())  # type: ignore[misc]  # hides no other error
        for parker in finalized:
            parker.park()
        for home in self._homes:
            home.forget()
        self._end()

    def _end(self) -> None:
        self._homes.clear()
        if self._first is not None:  # the version has no instances
            self._first.begin("finalize", then=lambda step: None)
            self._first.stop()
            self._first = None

    def set_owner(self, model: LoadedModel) -> None:
        """Make a model the owner of the new instances' modules."""
        for home in self._homes:
            home.owner = model
        self._end()


def _device_of(instance: InstanceSpec) -> tuple[str, int]:
    """Return the label of an instance's device, and the number of its CUDA GPU (-1: none)."""
    if instance.kind != "GPU":
        return "cpu", -1
    simulated = getattr(gpus(), "simulated", False)
    return Device("gpu", instance.device_id, simulated).label, -1 if simulated else instance.device_id


def regrouped_spec(spec: ModelSpec, config: ModelConfigMessage) -> ModelSpec | None:
    """Return a version's spec with the instance groups of another configuration; None if they are equal."""
    new = deepcopy(spec.config)
    del new.instance_group[:]
    new.instance_group.extend(config.instance_group)
    return None if new == spec.config else replace(model_spec(new), json=spec.json)


class Regrouping:
    """A change of the instance groups of a version in service: creates and warms up its new instances.

    Call `commit` or `undo` next. If the model raises an error, the new instances are finalized.
    """

    def __init__(self, model: LoadedModel, spec: ModelSpec, source: ModelSource) -> None:
        self.model = model
        self._spec = spec
        self._maker: InstanceMaker = model.maker
        available = grouped((instance.spec.like, instance) for instance in (*model.instances, *model.passive))
        kept: list[Instance] = []
        missing: list[InstanceSpec] = []
        for wanted in spec.instances:
            if candidates := available.get(wanted.like):
                kept.append(candidates.pop())
            else:
                missing.append(wanted)
        self._new = self._maker.make(missing, spec.json)
        self._instances = [*kept, *self._new]
        try:
            warm_up(model, [i for i in self._new if not i.spec.passive], source.folder)
        except BaseException:
            self.undo()
            raise

    def undo(self) -> None:
        self._maker.give_up(self._new)

    def commit(self) -> None:
        """Replace the version's instances; see `LoadedModel.regroup`."""
        self._maker.set_owner(self.model)
        self.model.regroup(self._spec, self._instances)
