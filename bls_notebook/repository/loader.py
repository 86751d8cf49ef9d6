"""Loads a model: config, code, instances, in the order in which Triton does.

Guarantees: nothing is put in service here, so a load that fails changes nothing; whatever the model
raises (also `sys.exit`) becomes a ModelLoadError; only Ctrl-C passes through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from bls_notebook.backends.errors import BackendError
from bls_notebook.backends.protocol import BackendInstance, BackendModel, VersionFiles
from bls_notebook.backends.registry import backend_names, find_backend, runs_on_gpu
from bls_notebook.devices.device import gpu
from bls_notebook.devices.registry import gpu_count, gpus
from bls_notebook.engine.bare_spans import span_of_frame
from bls_notebook.engine.errors import BLSError, ConfigError, ModelLoadError
from bls_notebook.engine.execution import Execution, bare_caller
from bls_notebook.engine.failures import HOME, describe_exception, exception_frames, text_of
from bls_notebook.engine.initializing import Initializing, as_model
from bls_notebook.engine.instance import Instance
from bls_notebook.engine.model import LoadedModel
from bls_notebook.engine.server import Server
from bls_notebook.engine.spec import InstanceSpec
from bls_notebook.observe.records import ErrorRecord
from bls_notebook.pb_utils import _runtime

from .config import (
    ModelConfigMessage,
    auto_complete,
    complete,
    model_spec,
    parse_config,
    parse_json,
    pick_versions,
    validate,
)
from .ensemble_loader import load_ensemble
from .fingerprint import code_hash, version_fingerprint
from .imports import ModuleHome
from .source import ModelSource
from .warmup import warm_up

__all__ = ["load_versions"]

POLL_FAILED = "failed to load '{name}', failed to poll from model repository"


def load_versions(
    server: Server,
    source: ModelSource,
    keep: bool = False,
    loading: Callable[[list[int]], None] | None = None,
) -> dict[int, LoadedModel]:
    """Return the versions of a model that its version policy picks, loaded.

    Parameters
    ----------
    keep : bool
        Whether versions that serve, and whose files have not changed, are returned as they are.
    loading : callable, optional
        Called with the numbers of the versions before they are loaded.

    Raises
    ------
    ConfigError
        The configuration is one that Triton refuses.
    ModelLoadError
        The model's code failed; `record` has its frames.
    """
    name = source.name
    try:
        config = _read_config(source)
        if config.platform == "ensemble":
            validate(config, folder=source.folder)
    except ConfigError as error:
        error.reason = POLL_FAILED.format(name=name)
        raise
    versions = source.versions
    wanted = pick_versions(config, versions)
    if not wanted:
        have = ", ".join(map(str, versions)) or "none"
        raise ModelLoadError(
            f"model {name!r}: no version to load: version folders there: {have}; expected a "
            f"folder named 1 with {config.default_model_filename or 'model.py'} in it, or a version_policy "
            f"that picks one of them ({source.folder})",
            name,
            f"load failed for model '{name}': at least one version must be available under the version "
            f"policy of model '{name}'",
        )
    if loading is not None:
        loading(wanted)
    serving = server.serving(name) if keep else {}
    loaded: dict[int, LoadedModel] = {}
    try:
        for version in wanted:
            if config.platform == "ensemble":
                ensemble = load_ensemble(server, config, version, versions[version])
                ensemble.be(replace(ensemble.seen, code=code_hash(source.folder, version)))
                loaded[version] = ensemble
                continue
            fingerprint = version_fingerprint(source.folder, config, version)
            if version in serving and serving[version].fingerprint == fingerprint:
                loaded[version] = serving[version]
                continue
            code = code_hash(source.folder, version)  # as it is now: a file may be edited after it was loaded
            loaded[version] = _load_version(server, source, config, version, versions[version])
            loaded[version].fingerprint = fingerprint
            loaded[version].be(replace(loaded[version].seen, code=code))
    except BaseException:
        for version, model in loaded.items():
            if serving.get(version) is not model:
                model.close()
        raise
    return loaded


def _read_config(source: ModelSource) -> ModelConfigMessage:
    if source.config_is_json and isinstance(source.config, (str, dict)):
        config = parse_json(source.config, model=source.name)
    else:
        config = parse_config(source.config, model=source.name)
    first = next(iter(source.versions.values()), None)
    files = () if first is None else tuple(sorted(f.name for f in first.iterdir()))
    return complete(config, model=source.name, files=files, gpus=gpu_count(), runs_on_gpu=runs_on_gpu)


def _load_version(
    server: Server, source: ModelSource, config: ModelConfigMessage, version: int, folder: Path
) -> LoadedModel:
    name = source.name
    homes: list[ModuleHome] = []
    instances: list[Instance] = []
    made: list[BackendInstance] = []
    try:
        with as_model(Initializing(server, name, str(folder), name)):
            backend_model = _open(source, config, version, folder, homes)
            config = auto_complete(config, backend_model)
            validate(config, folder=source.folder)
            spec = model_spec(config)
        for instance in spec.instances:
            arguments = {
                "model_config": spec.json,
                "model_instance_kind": instance.kind,
                "model_instance_name": instance.name,
                "model_instance_device_id": str(instance.device_id),
                "model_repository": str(source.folder),
                "model_version": str(version),
                "model_name": name,
            }
            with as_model(Initializing(server, instance.name, str(folder), name)):
                backend_instance = backend_model.make_instance(arguments)
            made.append(backend_instance)
            finalizing = _Finalizing(backend_instance, server, instance.name, str(folder), name)
            instances.append(Instance(instance.name, finalizing, *_device_of(instance)))
        model = LoadedModel(server, spec, version, str(folder), instances)
        warm_up(model, source.folder)
    except BaseException as error:
        for done in made:
            _quietly(done.finalize)
        for home in homes:
            home.forget()
        if isinstance(error, KeyboardInterrupt):
            raise
        raise _load_error(error, name, version) from error
    for home in homes:
        home.owner = model
    if len(homes) == len(instances):
        for home, place in zip(homes, instances, strict=True):
            home.instance = place
    return model


def _open(
    source: ModelSource, config: ModelConfigMessage, version: int, folder: Path, homes: list[ModuleHome]
) -> BackendModel:
    open_model = find_backend(config.backend)
    if open_model is None:
        what = "ensembles are" if config.platform == "ensemble" else f"backend {config.backend!r} is"
        raise ConfigError(
            f"model {source.name!r}: {what} not among the backends here: {', '.join(backend_names())}; "
            'change backend: "..." in its configuration'
        )

    def new_modules() -> ModuleHome:
        shown = f"{source.name}/{version}" if source.origin == "cell" else None
        home = ModuleHome(source.name, version, [folder, source.folder], shown)
        homes.append(home)
        return home

    return open_model(
        VersionFiles(source.name, version, source.folder, folder, config.default_model_filename, new_modules)
    )


def _device_of(instance: InstanceSpec) -> tuple[str, int]:
    """Where an instance is, as it is shown, and the number of its CUDA GPU; -1 for none."""
    if instance.kind != "GPU":
        return "cpu", -1
    simulated = getattr(gpus(), "simulated", False)
    return gpu(instance.device_id, simulated).label, -1 if simulated else instance.device_id


class _Finalizing:
    """An instance that finalizes as a model."""

    def __init__(self, inner: BackendInstance, server: Server, name: str, directory: str, model: str) -> None:
        self._inner = inner
        self._caller = (server, name, directory, model)
        self.asks_ready = getattr(inner, "asks_ready", False)
        self.execute = inner.execute
        self.is_async = inner.is_async

    def finalize(self) -> None:
        """Finalize the model's instance."""
        try:
            server, name, directory, _ = self._caller
            server.keep_metrics(name, directory)
            with as_model(Initializing(*self._caller)):
                self._inner.finalize()
        finally:
            del self.execute

    @property
    def model(self) -> Any:
        """The model's own object, None where there is none."""
        return getattr(self._inner, "model", None)

    def ready(self) -> bool:
        """Ask the model."""
        with as_model(Initializing(*self._caller)):
            return self._inner.ready()


def _quietly(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:
        pass  # the error that made the load fail is the one to show


def _load_error(error: BaseException, name: str, version: int) -> BLSError:
    if isinstance(error, ModelLoadError):
        return error
    failed = f"load failed for model '{name}': version {version} is at UNAVAILABLE state: "
    if isinstance(error, BackendError):
        reason = f"{failed}{error.code}: {error};\n"
        return ModelLoadError(f"model {name!r} version {version} could not be loaded: {error}", name, reason)
    reason = f"{failed}Internal: {describe_exception(error)};\n"
    if isinstance(error, ConfigError):
        error.reason = reason
        return error
    frames = exception_frames(error, name, version)
    own = [f for f in frames if f.model]
    where = f" ({Path(own[-1].file).name} line {own[-1].line})" if own else ""
    told = error.msg if isinstance(error, SyntaxError) else text_of(error)
    kind, words = type(error).__name__, told.strip().splitlines() or [""]
    message = f"model {name!r} version {version} could not be loaded: {kind}: {words[0]}{where}"
    problem = ModelLoadError(message, name, reason)
    problem.record = ErrorRecord(message, "", (name,), kind, frames)
    return problem


def _find_by_frame(frame: FrameType) -> Execution | None:
    """Who a request of a bare thread belongs to: the model whose code is on the stack."""
    home = frame.f_globals.get(HOME)
    model = getattr(home, "owner", None)
    if model is None:
        return None
    return bare_caller(model.server, model, span_of_frame(frame, getattr(home, "instance", None)))


_runtime.finders.append(_find_by_frame)
