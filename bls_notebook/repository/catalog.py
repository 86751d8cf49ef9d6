"""`Catalog`: the models of a repository, and the order in which they are loaded.

Models load in Triton's three control modes. ``explicit``: on request. ``none``: all models of the repository load at
the start and stay. ``poll``: as ``none``, and from then on the repository follows changes in its folders.

Guarantees: the models of an ensemble's steps load before the ensemble. An ensemble that left service because a step's
model was unloaded returns when that model is loaded again. No thread holds two models' locks at a time. Ctrl-C
interrupts model code and waits; KeyboardInterrupt is raised once the repository is consistent again.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from bls_notebook.engine.core.metrics_config import parsed_metrics_config
from bls_notebook.engine.core.model import LoadedModel, wait_until_closed
from bls_notebook.engine.core.rate_limiter import rate_limiter
from bls_notebook.engine.core.response_cache import DEFAULT_CACHE_BYTES, ResponseCache
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.errors import POLL_FAILED, BLSError, ConfigError, ModelLoadError, ModelNotFoundError
from bls_notebook.engine.metrics import Metrics
from bls_notebook.engine.waiting.operations import perform, undo
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.stub_modules import NAMES
from bls_notebook.progress import progress
from bls_notebook.records.advice import Known, missing_model
from bls_notebook.records.models import ModelRecord, ModelRecords

from .callers import caller_warnings
from .config import ModelConfigMessage, parse_config
from .loading import ensembles
from .loading.ensembles import refuse_ensemble
from .modules.module_home import SourcePlace
from .polling import FolderPolling, poll_every
from .shutdown import opened
from .source.code_analysis import model_class_warnings, stray_import_warnings, undefined_name_warnings
from .source.definition_changes import changes, lost_tensors, texts_of
from .source.model_folders import backend_folders, backend_path, config_text, repository_paths, shown_path
from .source.model_source import ModelSource
from .source.names import check_config_name, check_home, check_model_name, check_version
from .source.namespaces import Namespaces, identified_anew
from .source.replaced_config import ReplacedConfig, replaced_config
from .statistics import server_families
from .substitution.stub_config import backend_of
from .versions_in_service import Service

Config = str | Mapping[str, Any]
ControlMode = Literal["explicit", "none", "poll"]
CONTROL_MODES: tuple[ControlMode, ...] = ("explicit", "none", "poll")
_NOT_EXPLICIT = "explicit model load / unload is not allowed if polling is enabled"

log = logging.getLogger("bls_notebook")
_C = TypeVar("_C", bound="Catalog")
_P = ParamSpec("_P")
_R = TypeVar("_R")


def change(method: Callable[Concatenate[_C, _P], _R]) -> Callable[Concatenate[_C, _P], _R]:
    """Decorate a change of a repository: it is an operation, see `engine.waiting.operations`."""

    @wraps(method)
    def call(self: _C, /, *args: _P.args, **options: _P.kwargs) -> _R:
        __tracebackhide__ = True
        self._server.find("")  # raises in a forked child, which cannot use it
        return perform(partial(method, self, *args, **options))

    return call


class Catalog:
    """The models of a `ModelRepository`, which describes the parameters."""

    def __init__(
        self,
        *paths: str | Path | Sequence[str | Path],
        strict: bool = False,
        control_mode: ControlMode = "explicit",
        poll_seconds: float | None = 15.0,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        backend_directory: str | Path | None = None,
        fill: Mapping[str, object] | None = None,
        model_config_name: str = "",
        metrics_config: Mapping[str, str] | None = None,
        rate_limit: str = "off",
        rate_limit_resources: Iterable[str] = (),
        model_namespacing: bool = False,
    ) -> None:
        self.model_config_name = check_config_name(model_config_name)
        self.fill = None if fill is None else dict(fill)
        self._namespaces = Namespaces(repository_paths(paths), model_namespacing)
        self.backend_directory = backend_path(backend_directory)
        if control_mode not in CONTROL_MODES:
            raise BLSError(f"control_mode: got {control_mode!r}, expected one of {', '.join(map(repr, CONTROL_MODES))}")
        if poll_seconds is not None and not poll_seconds > 0:
            raise BLSError(f"poll_seconds: got {poll_seconds!r}, expected a number above 0, or None")
        self.control_mode = control_mode
        self._service = Service(self, ResponseCache(cache_bytes), strict, self._namespaces)
        self._server: Server = self._service.server
        self._server.backend_folders = backend_folders(self.paths, self.backend_directory)
        self._server.metrics_config = parsed_metrics_config(metrics_config or {})
        self._server.rate_limiter = rate_limiter(rate_limit, rate_limit_resources)
        index = self._service.index
        self._known = Known(index.newest, index.rows, NAMES, self._server.elsewhere)
        self.metrics = Metrics(partial(server_families, weakref.ref(self._server)))
        self._definitions: dict[str, ModelSource] = {}
        self._configs: dict[str, object] = {}
        self._before_load: list[Callable[[ModelSource], ModelSource]] = []  # change the source of a folder's model
        self._polling = FolderPolling(self._namespaces, self._definitions, self._load_folder, self._service.unload)
        opened(self._service)
        if control_mode != "explicit":
            self._start(poll_seconds)

    __init__.__qualname__ = "ModelRepository.__init__"  # which Python's errors about wrong arguments name

    @change
    def _start(self, poll_seconds: float | None) -> None:
        """Load the models that the control mode requires, and start polling."""
        undo(partial(self._service.close, 0))
        self._polling.follow()
        if self.control_mode == "poll" and poll_seconds is not None:
            poll_every(weakref.WeakMethod(self._polling.follow), poll_seconds, self._service.closing)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The folders in which models are searched."""
        return self._namespaces.paths

    def ready(self, name: str, version: int | None = None) -> bool:
        """Return whether the given version of a model serves; None: any version."""
        check_model_name(name)
        if version is not None:
            check_version(version)
        model = self._server.find(name, -1 if version is None else version)
        return model is not None and model.ready()

    def index(self, folders: bool = True) -> ModelRecords:
        """Return a record of every known version of every model, sorted by name and version.

        Parameters
        ----------
        folders : bool
            Whether to list models in the folders that were never loaded.
        """
        return ModelRecords(self._service.index.rows(folders))

    def config(self, name: str) -> ModelConfigMessage:
        """Return a copy of a model's completed configuration; ModelNotFoundError if no version serves."""
        return deepcopy(self._ready_model(name).spec.config)

    def model(self, name: str) -> ModelRecord:
        """Return the record of a model's newest version in service; ModelNotFoundError if none serves."""
        return self._service.index.record(name, self._ready_model(name).version)

    def define(
        self,
        name: str,
        source: str,
        config: Config | ModelConfigMessage | None = None,
        version: int = 1,
        isolation: str | None = None,
        environment: object = None,
    ) -> ModelRecord:
        """Define a model by its source and load it; ``%%tritonmodel`` calls this.

        Parameters
        ----------
        name : str
            Name of the model. A model of the same name is replaced once the new one has loaded.
        source : str
            Text of model.py.
        config : str, dict or ModelConfig, optional
            Configuration, as in config.pbtxt. Default: the one given to `set_config`, or else that of the model on
            disk (or its stub) that this one replaces. The model's `auto_complete_config` completes it.
        version : int
            Number of the version.
        isolation, environment : optional
            As for `load`.

        Returns
        -------
        ModelRecord

        Raises
        ------
        InvalidNameError, ConfigError, ModelLoadError
            The version that was in service still serves.
        """
        return self._define(name, source, config, version, check_home(isolation, environment))

    @change
    def _define(
        self, name: str, source: str, config: Config | ModelConfigMessage | None, version: int,
        home: Mapping[str, Any] = MappingProxyType({}), notebook_names: Collection[str] | None = None,
        place: SourcePlace | None = None, options: Mapping[str, Any] | None = None,
    ) -> ModelRecord:  # fmt: skip
        check_model_name(name)
        check_version(version)
        if not isinstance(source, str):
            raise BLSError(f"model {name!r}: source: got {type(source).__name__}, expected the text of model.py")
        try:
            code = source.encode("utf-8")
        except UnicodeEncodeError as error:
            raise BLSError(f"model {name!r}: source: {error}; expected text that UTF-8 can encode") from error
        numbered = source if place is None else place.numbered(source)
        warnings = undefined_name_warnings(numbered, name, notebook_names)
        warnings += stray_import_warnings(numbered, name)
        warnings += model_class_warnings(numbered, name)
        if warnings and self._server.strict:
            raise ModelLoadError(f"{'; '.join(warnings)} (strict)", name)
        if config is None and options is None:
            config = self._configs.get(name)
        replaced = None
        if config is None:
            replaced, problems = self._replaced_config(name)
            warnings += problems
            config = options if replaced is None else replaced.changed(options or {})
        files = {} if replaced is None else replaced.files()
        folder = self._service.folder.write(name, {**files, f"{version}/model.py": code})
        if place is None:
            place = SourcePlace(str(folder / str(version) / "model.py"), f"{name}/{version}/model.py")
        defined = ModelSource(name, folder, "cell", config, False, warnings, place, None, None, replaced, **home)
        old = self._service.index.newest(name)
        record = self._serve(defined)
        return replace(record, warnings=record.warnings + caller_warnings(self._server, old, record))

    def _replaced_config(self, name: str) -> tuple[ReplacedConfig | None, tuple[str, ...]]:
        """Return the configuration of the model on disk, or of its stub, that a cell replaces, and warnings."""
        defined, served, stub = self._definitions.get(name), self._service.sources.get(name), self._server.own(name)
        if defined is None and served is not None and served.stub is not None and stub:
            config = stub[max(stub)].spec.config
            return replaced_config(config, name, "stub", served.folder, "its stub", stays=True), ()
        if defined is not None and defined.replaced is not None and defined.replaced.stays:
            return defined.replaced, ()
        try:
            source = self._source_on_disk(name)
            config = source.parsed_config()
        except ModelNotFoundError:
            return None, ()
        except BLSError as error:
            return None, (f"the model on disk has no readable configuration to keep: {error}",)
        if source.config is None:
            return None, ()
        backend = backend_of(config, source.folder)
        return replaced_config(config, name, backend, source.folder, f"{source.origin}/config.pbtxt"), ()

    @change
    def set_config(self, name: str, config: str | Mapping[str, Any]) -> ModelRecord | None:
        """Set the configuration (config.pbtxt) of a model; ``%%tritonconfig`` calls this.

        The text is checked now, and the next `define` uses it. A cell's model in service is reloaded with it at once,
        and its record is returned. An ensemble needs no source, so it is loaded at once, too.

        Raises
        ------
        ConfigError, ModelLoadError
            The previous configuration stays.
        """
        check_model_name(name)
        if ensembles.members_of(parse_config(config, model=name)):
            record: ModelRecord | None = self.define(name, "", config)
            self._configs[name] = config
            return record
        with self._service.lock_of(name):
            record = None
            if self._server.serving(name) and name in self._definitions:
                old = self._service.index.newest(name)
                source = replace(self._definitions[name], config=config, replaced=None)
                record = self._load_source(source, keep=True, defines=True)
                lost = () if old is None else lost_tensors(old, record)
                lost += caller_warnings(self._server, old, record)
                record = replace(record, warnings=record.warnings + lost)
            self._configs[name] = config
        if record is not None:
            self._refresh_users(name)
        return record

    @change
    def load(
        self, name: str, config: Config | None = None, files: Mapping[str, bytes] | None = None,
        isolation: str | None = None, environment: object = None,
    ) -> ModelRecord:  # fmt: skip
        """Load a model, or reload it if its files have changed.

        The models of an ensemble's steps are loaded with it. Only the versions whose files have changed are
        reloaded. If only the instance groups changed, instances are added, or removed once they are idle.

        Parameters
        ----------
        name : str
        config : str or dict, optional
            Configuration as JSON text or a dict, in place of config.pbtxt.
        files : mapping of str to bytes, optional
            Contents of files by ``file:<version>/<name>``, in place of the files on disk; needs `config`.
        isolation : str, optional
            ``"process"``: each instance of a Python model is a process, as on Triton; ``"kernel"``: a thread of the
            kernel. Default: as when it was loaded last, or else the repository's `isolation`.
        environment : EnvironmentRecord or path, optional
            The result of `environment`, or a folder or archive: the model's ``EXECUTION_ENV_PATH``. Implies processes.

        Returns
        -------
        ModelRecord
            Record of the newest version.

        Raises
        ------
        ModelNotFoundError, InvalidNameError, ConfigError, ModelLoadError
            The versions that were in service still serve.
        """
        check_model_name(name)
        self._may_control(name, "load")
        if not files:
            home = check_home(isolation, environment)
            return self._load_all(name, lambda key: partial(self._source, key, config, home), keep=True)
        if config is None:
            raise ModelLoadError(
                f"model {name!r}: got files without a config; pass config as JSON text, too",
                name,
                POLL_FAILED.format(name=name),
            )
        folder = self._service.folder.from_overrides(name, files)
        key = name if len(self._namespaces.keys(name)) < 2 else identified_anew(name)
        home = check_home(isolation, environment)
        source = ModelSource(key, folder, "files", config, config_is_json=True, **home)
        return self._load(lambda: source)

    @change
    def reload(self, name: str) -> ModelRecord:
        """Load a model again from its files or its cell, even if they have not changed."""
        check_model_name(name)
        return self._load_all(name, lambda key: partial(self._source, key))

    def _load_all(self, name: str, find: Callable[[str], Callable[[], ModelSource]], keep: bool = False) -> ModelRecord:
        """Load the models of a name, one in each namespace that has it, and return the first one's record."""
        found = name not in self._definitions and self._namespaces.enabled and self._namespaces.keys(name)
        keys = found or [name]
        for key in set(self._service.index.keys(name)) - {*keys, identified_anew(name)}:  # a folder got or lost it
            wait_until_closed(self._service.unload(key))
            self._service.index.forget(key)
        records, problems = list[ModelRecord](), list[BLSError]()
        for key in keys:
            try:
                records.append(self._load(find(key), keep))
            except BLSError as error:
                problems.append(error)
        if problems:
            raise problems[0]
        return replace(records[0], name=name)

    @change
    def unload(self, name: str, unload_dependents: bool = False) -> None:
        """Take a model out of service; requests in flight finish first.

        Unloading a model that is not loaded is no error, as in Triton. Ensembles with this model as a step leave
        service with it and return when it is loaded again. If a model calls this, it does not wait.

        Parameters
        ----------
        name : str
        unload_dependents : bool
            Whether to unload the models that were loaded only as steps of this ensemble.
        """
        left = self._leave(name, unload_dependents)
        if caller_var.get() is None:  # a model that unloads itself would wait forever
            with progress(f"unloading {name}: requests in flight finish first"):
                wait_until_closed(left)

    def _leave(self, name: str, unload_dependents: bool) -> list[LoadedModel]:
        """Take a model out of service; return its versions, whose requests finish later."""
        if not isinstance(name, str):
            check_model_name(name)  # raises
        self._may_control(name, "unload")
        keys = self._service.index.keys(name) or [name]
        return [model for key in keys for model in self._service.unload(key, unload_dependents)]

    @change
    def clear(self, keep_folders: bool = False) -> None:
        """Unload every model and forget the models of cells; a BLSError if a model of this repository calls it.

        Parameters
        ----------
        keep_folders : bool
            Whether models loaded from folders, without other files or configuration, stay in service.
        """
        self._service.not_by_a_model("clear")
        left = self._server.names()
        if keep_folders:
            sources = self._service.sources
            left = [
                n for n in left if sources[n].config_is_json or sources[n].stub is not None or n in self._definitions
            ]
        try:
            with progress("unloading every model: requests in flight finish first"):
                wait_until_closed(m for name in left for m in self._service.unload(name))
        finally:  # also on Ctrl-C
            self._server.last_failure = None  # its traceback would keep the model alive
            for source in list(self._definitions.values()):
                self._service.folder.discard(source.folder)
            self._definitions.clear()
            self._configs.clear()
            if keep_folders:
                self._service.index.forget_unloaded()
            else:
                self._service.dependencies.clear()
                self._service.index.clear()

    @change
    def poll(self) -> list[str]:
        """Check the folders now: load new models, reload changed ones, and unload removed ones.

        The next poll tries again to load a model that failed, as on Triton.

        Returns
        -------
        list of str
            Names of the models that were loaded or unloaded by this poll.

        Raises
        ------
        BLSError
            The control mode is not ``"poll"``.
        """
        if self.control_mode != "poll":
            raise BLSError(
                f"poll: the repository's control_mode is {self.control_mode!r}; create it with control_mode='poll'"
            )
        return self._polling.follow()

    def _ready_model(self, name: str) -> LoadedModel:
        """Return the newest version in service of a model, or raise ModelNotFoundError."""
        check_model_name(name)
        model = self._server.find(name)
        if model is None:
            self._service.refuse_if_closed(name)
            if self._server.identifiers and len(self._server.identifiers(name) or ()) > 1:
                raise BLSError(f"model {name!r}: {self._server.why_unknown(name, -1)}")
            raise ModelNotFoundError(f"model {name!r} is not loaded; {missing_model(name, self._known)}")
        return model

    def _may_control(self, name: str, verb: str) -> None:
        """Refuse to load or unload a model of a folder on request if the control mode forbids it."""
        if self.control_mode != "explicit" and name not in self._definitions:
            raise ModelLoadError(
                f"model {name!r}: cannot {verb} it: the repository loads its models itself "
                f"(control_mode={self.control_mode!r}); create the repository with control_mode='explicit'",
                name,
                _NOT_EXPLICIT,
            )

    def _forget(self, name: str) -> None:
        """Forget a defined model that has left service, and remove its files."""
        source = self._definitions.pop(name, None)
        if source is not None:
            self._service.folder.discard(source.folder)
        self._service.index.forget(name)

    @change
    def _serve(self, source: ModelSource) -> ModelRecord:
        """Make a source the definition of its model, and serve it."""
        return self._load(lambda: source, defines=True)

    def _load_folder(self, name: str) -> ModelRecord:
        return self._load(partial(self._source, name), keep=True)

    def _load(
        self,
        find: Callable[[], ModelSource],
        keep: bool = False,
        defines: bool = False,
        chain: tuple[str, ...] = (),
        tried: set[str] | None = None,
    ) -> ModelRecord:
        """Load a model after the models of its steps, and then the ensembles that need it.

        `find` returns its source. With `keep`, versions whose files have not changed stay. With `defines`, the source
        becomes the model's definition. `chain`: the ensembles that need it, outermost first. Steps that are in `tried`
        and in service are not loaded again: an ensemble can need a model in many ways. As on Triton, no step is
        unloaded while the ensemble loads.
        """
        source = find()
        with ExitStack() as locks:
            for needed in ensembles.lock_order(source, self._source) if not chain and source.stub is None else ():
                locks.enter_context(self._service.lock_of(needed))
            name = source.name
            try:
                try:
                    if source.stub is None:  # a stub replaces an ensemble without its steps
                        self._load_members(source, chain, set() if tried is None else tried)
                except ModelLoadError as error:
                    self._service.index.failed(source, error)
                    raise
                with self._service.lock_of(name):
                    if name in self._definitions:
                        source = find()  # a cell may have run while this thread waited for the lock
                    serving = self._server.serving(name) if keep and not source.config_is_json else {}
                    unchanged = bool(serving) and self._service.is_unchanged(source)
                    if unchanged:
                        record = self._service.index.record(name, max(serving))
                    else:
                        record = self._load_source(source, keep, defines)
            except BaseException:
                if name not in self._definitions or self._definitions[name].folder != source.folder:
                    self._service.folder.discard(source.folder)
                raise
            if not chain:
                self._service.dependencies.add_explicit(name)
                if caller_var.get() is None:  # a model may be one of the instances that finish first
                    for model in self._server.own(name).values():
                        model.wait_for_removed()
            if not unchanged:
                self._refresh_users(name)
            return record

    def _load_source(self, source: ModelSource, keep: bool, defines: bool) -> ModelRecord:
        """Load a source. The caller holds the model's lock."""
        name = source.name
        previous = self._definitions.get(name) if defines else None
        before = {} if previous is None else texts_of(self._server.find(name))
        if defines:
            self._service.defined_anew(name)
        record = self._service.load(source, keep)
        if defines:
            self._definitions[name] = source
        if previous is not None:
            record = replace(record, changes=changes(before, texts_of(self._server.find(name))))
            if previous.folder != source.folder:
                self._service.folder.discard(previous.folder)
        return record

    def _source(self, name: str, config: object = None, home: Mapping[str, Any] = MappingProxyType({})) -> ModelSource:
        source = self._definitions.get(name) or self._source_on_disk(name)
        last = self._service.sources.get(name, source)
        source = replace(source, **{"isolation": last.isolation, "environment": last.environment, **home})
        return source if config is None else replace(source, config=config, config_is_json=True)

    def _source_on_disk(self, name: str) -> ModelSource:
        from .config.templates import filled_config  # first needed here

        folder = self._namespaces.find(name)
        filled, warnings = filled_config(config_text(folder, self.model_config_name), self.fill, folder.name)
        namespace = self._namespaces.of(folder)
        source = ModelSource(name, folder, shown_path(folder), filled, warnings=warnings, namespace=namespace)
        for hook in list(self._before_load):
            source = hook(source)
        members = [each for each in ensembles.members_of_source(source) if each not in self._definitions]
        return replace(source, steps=self._namespaces.steps(namespace, members))

    def _load_members(self, source: ModelSource, chain: tuple[str, ...], tried: set[str]) -> None:
        name = source.name
        chain = (*chain, name)
        if len(chain) > ensembles.MOST_NESTED:
            refuse_ensemble(name, f"ensembles are nested more than {ensembles.MOST_NESTED} deep", "use fewer ensembles")
        members = list(filter(None, ensembles.members_of_source(source)))  # the load rejects a step without a model
        for member in members:
            if member in chain:
                reason = f"circular dependency between ensembles: {member} -> ... -> {name} -> {member}"
                refuse_ensemble(name, reason, "an ensemble cannot be a step of itself", ensembles.CircularEnsembleError)
            if not self._server.serving(member) and member not in self._definitions:
                try:
                    self._namespaces.find(member)
                except BLSError:
                    ensembles.refuse_missing(source.identifier, member)
        for member in members:
            if (member in tried or member in self._definitions) and self._server.serving(member):
                continue
            tried.add(member)
            try:
                self._load(partial(self._source, member), keep=True, chain=chain, tried=tried)
            except (ConfigError, ModelNotFoundError, ModelLoadError) as error:
                if not self._server.serving(member):
                    ensembles.refuse_member(source.identifier, member, error)
                log.warning("%s; ensemble '%s' uses the version in service", error, name)

    def _refresh_users(self, name: str) -> None:
        """Reload the ensembles that need this model, each once and after its steps, because the model has changed."""
        failed = set[str]()
        for user in self._service.dependencies.all_users(name):
            try:
                with self._service.lock_of(user):
                    current = self._service.dependencies.wanted(user)
                    if current is None:  # another thread unloaded it
                        continue
                    if not failed.isdisjoint(ensembles.members_of_source(current)):
                        failed.add(user)
                        continue
                    self._service.load(current)
            except BLSError as error:
                failed.add(user)
                log.warning("%s; the ensemble leaves service", error)
                self._service.take_out_users(user)
                self._service.take_out(user, f"unloaded: {error}")
