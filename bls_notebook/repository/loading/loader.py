"""Load the versions of a model in Triton's order: configuration, code, instances. Remote models need only the first.

Guarantees: a failed load changes nothing. A successful load changes only the instances of versions that stay in
service. Whatever the model raises, including `sys.exit`, becomes a ModelLoadError; only Ctrl-C is passed on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import cast

from bls_notebook.backends.protocol import BackendError, RemoteBackend, runs_on_gpu
from bls_notebook.devices.registry import gpu_count
from bls_notebook.engine.calling import BareCaller
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.model_spec import InstanceSpec, ModelSpec
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.core.signature_check import RequestCheck
from bls_notebook.engine.errors import POLL_FAILED, BLSError, ConfigError, InvalidNameError, ModelLoadError
from bls_notebook.engine.exception_text import describe, is_a
from bls_notebook.engine.observer import observed_of_frame
from bls_notebook.engine.schedulers.selection import scheduler_for
from bls_notebook.engine.waiting.operations import WaitInterruptedError
from bls_notebook.pb_utils import _runtime
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.records.advice import about_loading
from bls_notebook.records.errors import ErrorRecord
from bls_notebook.repository.config import ModelConfigMessage, complete, model_spec, pick_versions, to_json
from bls_notebook.repository.config.validation import validate
from bls_notebook.repository.modules.code_owner import owner_of
from bls_notebook.repository.source.fingerprints import code_hash, version_fingerprint
from bls_notebook.repository.source.model_source import ModelSource, RemoteModel
from bls_notebook.repository.source.names import check_launchable

from .ensembles import check_members
from .instances import InstanceMaker, Regrouping, regrouped_spec
from .warmup import warm_up


def load_versions(
    server: Server, source: ModelSource, keep: bool = False, loading: Callable[[list[int]], None] | None = None
) -> dict[int, LoadedModel]:
    """Load the versions of a model that its version policy picks, and return them by number.

    With `keep`, versions in service whose files have not changed are reused, with other instances if the instance
    groups changed. `loading` is called with the numbers of the versions before they are loaded.
    """
    name = source.name
    if source.remote is not None:
        return load_remote(server, source, source.remote)
    try:
        config = read_config(source)
        if config.platform == "ensemble":
            validate(config, folder=source.folder)
    except ConfigError as error:
        newest = max(source.versions, default=1)
        failed = f"load failed for model '{source.identifier}': version {newest} is at UNAVAILABLE state: "
        error.reason = f"{failed}{error.reason};\n" if error.reason else POLL_FAILED.format(name=name)
        raise
    versions = source.versions
    wanted = pick_versions(config, versions)
    if not wanted:
        existing = ", ".join(map(str, versions)) or "none"
        raise ModelLoadError(
            f"model {name!r}: no version to load in {source.folder}: its version folders: {existing}; expected a "
            f"folder named 1 that contains {config.default_model_filename or 'model.py'}, or a version_policy "
            "that picks an existing version",
            name,
            f"load failed for model '{source.identifier}': at least one version must be available under the version "
            f"policy of model '{source.identifier}'",
        )
    if loading is not None:
        loading(wanted)
    serving = server.own(name) if keep else {}
    loaded: dict[int, LoadedModel] = {}
    regroupings: list[Regrouping] = []
    try:
        for version in wanted:
            if config.platform == "ensemble":
                ensemble = _load_ensemble(server, source, config, version, versions[version])
                ensemble.be(replace(ensemble.seen, code=code_hash(source.folder, version)))
                loaded[version] = ensemble
                continue
            isolation = source.isolation or f"by default in the {server.isolation}"
            fingerprint = version_fingerprint(source.folder, config, version), isolation
            # Without an active instance, waiting requests would never be answered.
            serves = any(not group.passive for group in config.instance_group)
            if serves and version in serving and serving[version].fingerprint == fingerprint:
                loaded[version] = serving[version]
                regrouping = _regroup(serving[version], config, source)
                if regrouping is not None:
                    regroupings.append(regrouping)
                continue
            code = code_hash(source.folder, version)  # computed before the load: a file may be edited during it
            loaded[version] = _load_version(server, source, config, version, versions[version])
            loaded[version].fingerprint = fingerprint
            loaded[version].be(replace(loaded[version].seen, code=code))
    except BaseException:
        for version, model in loaded.items():
            if serving.get(version) is not model:
                model.close()
        for regrouping in regroupings:
            regrouping.undo()
        raise
    for regrouping in regroupings:
        regrouping.commit()
    return loaded


def read_config(source: ModelSource) -> ModelConfigMessage:
    """Return a model's configuration with the values that Triton fills in without running the model's code."""
    config = source.parsed_config()
    first = next(iter(source.versions.values()), None)
    files = () if first is None else tuple(sorted(os.listdir(first)))
    for step in config.ensemble_scheduling.step:
        if step.model_name in source.steps:
            step.model_namespace = source.steps[step.model_name][0]
    return complete(config, model=source.model, files=files, gpus=gpu_count(), runs_on_gpu=runs_on_gpu)


def _load_ensemble(
    server: Server, source: ModelSource, config: ModelConfigMessage, version: int, folder: Path
) -> LoadedModel:
    steps = {name: key for name, (_, key) in source.steps.items()}

    def find(name: str, number: int) -> ModelSpec | None:
        model = server.find_key(steps.get(name, name), number)
        return None if model is None else model.spec

    spec = model_spec(config)
    if check_members(spec, find):  # an ensemble has the transaction policy of its members
        config.model_transaction_policy.decoupled = True
        spec = model_spec(config)
    model = LoadedModel(server, spec, version, str(folder), [], name=source.name)
    model.namespace, model.steps = source.namespace, steps
    model.scheduler = scheduler_for(model)
    return model


def _load_version(
    server: Server, source: ModelSource, config: ModelConfigMessage, version: int, folder: Path
) -> LoadedModel:
    _check_names(config, version)
    instances: list[Instance] = []
    maker = InstanceMaker(server, source, version, folder)
    started = perf_counter()
    config = deepcopy(config)
    try:
        config = maker.complete(config)
        validate(config, folder=source.folder)
        spec = model_spec(config)
        instances = maker.make(spec.instances, spec.json)
        model = LoadedModel(server, spec, version, str(folder), instances, source.stub is not None, name=source.name)
        model.namespace = source.namespace
        model.scheduler = scheduler_for(model)
        warm_up(model, model.instances, source.folder)
    except BaseException as error:
        maker.give_up(instances)
        if is_a(error, WaitInterruptedError):
            raise
        code = folder / (config.default_model_filename or "model.py")
        raise _load_error(error, source.model, version, code=code, identifier=source.identifier) from error
    maker.set_owner(model)
    model.maker = maker
    model.load_seconds = perf_counter() - started
    return model


def _check_names(config: ModelConfigMessage, version: int, state: str = "UNAVAILABLE") -> None:
    if config.backend != "python":
        return
    try:
        check_launchable(config.name, f"model name {config.name!r}")
        for group in config.instance_group:
            check_launchable(group.name, f"model {config.name!r}: the name {group.name!r} of an instance group")
    except InvalidNameError as error:
        failed = f"load failed for model '{config.name}': version {version} is at {state} state: "
        error.reason = f"{failed}{error.reason};\n"
        raise


def _regroup(model: LoadedModel, config: ModelConfigMessage, source: ModelSource) -> Regrouping | None:
    """Prepare changed instance groups for a version in service; None if they are unchanged."""
    spec = regrouped_spec(model.spec, config)
    _check_names(config, model.version, "READY")
    try:
        return None if spec is None else Regrouping(model, spec, source)
    except BaseException as error:
        if is_a(error, WaitInterruptedError):
            raise
        raise _load_error(error, model.name, model.version, "READY") from error


def _load_error(
    error: BaseException,
    name: str,
    version: int,
    state: str = "UNAVAILABLE",
    code: Path | None = None,
    identifier: str = "",
) -> BLSError:
    if is_a(error, ModelLoadError):
        return cast(ModelLoadError, error)
    failed = f"load failed for model '{identifier or name}': version {version} is at {state} state: "
    if is_a(error, BackendError):
        kind = cast(BackendError, error).code
        message = f"model {name!r} version {version} could not be loaded: {error}"
        return ModelLoadError(message, name, f"{failed}{kind}: {error};\n")
    description = describe(error, name, version)
    reason = f"{failed}Internal: {description.message};\n"
    if is_a(error, ConfigError):
        refused = cast(ConfigError, error)
        refused.reason = f"{failed}{refused.reason or f'Invalid argument: {refused}'};\n"
        return refused
    own = [f for f in description.frames if f.model]
    where = f" ({Path(own[-1].file).name} line {own[-1].line})" if own else ""
    message = f"model {name!r} version {version} could not be loaded: {description}{where}"
    problem = ModelLoadError(message, name, reason)
    record = ErrorRecord(message, "", (name,), description.kind, description.frames)
    problem.record = about_loading(record, code)
    return problem


def _find_bare_caller(frame: FrameType | None) -> BareCaller | None:
    """Return the sender of a request from a bare thread: the model on its stack, or that started the thread."""
    home, frame = owner_of(frame)
    if home is None or home.owner is None:
        return None
    behind = home.instance and home.instance.only_execution
    return BareCaller(home.owner.server, home.owner, observed_of_frame(frame, behind), behind)


_runtime.finders.append(_find_bare_caller)


DEVICE = "remote"


class _ServerChecks(RequestCheck):
    """Accepts every request: the remote server checks it."""

    __slots__ = ()

    def problem(self, request: InferenceRequest, wrong_data: Mapping[str, str] | None = None) -> str | None:
        return next(iter(wrong_data.values()), None) if wrong_data else None


def load_remote(server: Server, source: ModelSource, remote: RemoteModel) -> dict[int, LoadedModel]:
    """Return the versions of a remote model that are ready on its server, by number."""
    name = source.name
    if source.config is not None:
        raise ModelLoadError(
            f"model {name!r} is remote: its configuration cannot be changed here; change it on {remote.address}", name
        )
    with remote.described(name) as model:
        model.config.name = name
        return {
            number: _loaded(server, remote.address, model.config, number, open_version)
            for number, open_version in model.open.items()
        }


def _loaded(
    server: Server,
    address: str,
    config: ModelConfigMessage,
    number: int,
    open_version: Callable[[bool, tuple[str, ...]], RemoteBackend],
) -> LoadedModel:
    plain = deepcopy(config)  # with the shapes that clients send: the server reshapes them
    for tensor in (*plain.input, *plain.output):
        tensor.ClearField("reshape")
    plain.ClearField("instance_group")  # the server's instances, of any number
    instance = InstanceSpec(address, "CPU", 0)
    spec = replace(model_spec(plain), config=config, json=to_json(config), instances=(instance,), instance_kind="")
    made = Instance(address, open_version(spec.decoupled, tuple(spec.outputs)), DEVICE, spec=instance)
    model = LoadedModel(server, spec, number, "", [made], remote=address)
    model.be(replace(model.seen, instances=()))  # the server accepts any number of requests at a time
    model.cpu_only = True
    model.check = _ServerChecks(spec)
    model.scheduler = scheduler_for(model)
    return model
