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
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bls_notebook import pb_utils
from bls_notebook.engine.core.model import LoadedModel, wait_until_closed
from bls_notebook.engine.core.response_cache import ResponseCache
from bls_notebook.engine.errors import BLSError, ConfigError, InvalidNameError, ModelLoadError, ModelNotFoundError
from bls_notebook.engine.metrics import Metrics
from bls_notebook.engine.waiting.operations import undo
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.progress import progress
from bls_notebook.records.advice import Known, missing_model

from .config import ModelConfigMessage, parse_config
from .loading import ensembles
from .loading.ensembles import refuse_ensemble
from .loading.loader import POLL_FAILED
from .locks import change
from .metric_families import server_families
from .polling import FolderPolling, Poller
from .source.code_analysis import model_class_warnings, stray_import_warnings, undefined_name_warnings
from .source.definition_changes import changes, texts_of
from .source.fingerprints import signature
from .source.model_folders import config_text, find_model, shown_path
from .source.model_source import ModelSource, SourcePlace
from .source.names import check_model_name, check_version
from .versions_in_service import Service

if TYPE_CHECKING:
    from bls_notebook.records.models import ModelRecord


Config = str | Mapping[str, Any]


@contextmanager
def _tritons_reasons(name: str) -> Iterator[None]:
    try:
        yield
    except (ModelLoadError, ConfigError) as error:
        raise ModelLoadError(error.reason or str(error), name) from error
    except (ModelNotFoundError, InvalidNameError) as error:
        raise ModelLoadError(getattr(error, "reason", "") or POLL_FAILED.format(name=name), name) from error


ControlMode = Literal["explicit", "none", "poll"]
CONTROL_MODES: tuple[ControlMode, ...] = ("explicit", "none", "poll")
_NOT_EXPLICIT = "explicit model load / unload is not allowed if polling is enabled"

_MOST_NESTED = 64  # ensembles in ensembles; each one needs a part of the stack

log = logging.getLogger("bls_notebook")


def _lost_tensors(old: ModelRecord, new: ModelRecord) -> tuple[str, ...]:
    """Return a warning for the inputs, and one for the outputs, that a new configuration no longer has."""
    lines = []
    for kind, before, after in (("input", old.inputs, new.inputs), ("output", old.outputs, new.outputs)):
        if lost := [repr(spec.name) for spec in before if spec.name not in {kept.name for kept in after}]:
            what = f"{kind}{'s' * (len(lost) > 1)} {', '.join(lost)}"
            lines.append(f"the model no longer has {what}: this configuration replaces the earlier one as a whole")
    return tuple(lines)


class Catalog:
    """The models of a repository; `ModelRepository` documents the methods that both have.

    Also an `engine.core.server.Loader`, which loads and unloads on behalf of models (`pb_utils.load_model`).
    """

    def __init__(
        self,
        paths: tuple[Path, ...],
        backend_folders: tuple[Path, ...],
        control_mode: ControlMode,
        poll_seconds: float | None,
        cache_bytes: int,
        strict: bool,
        fill: Mapping[str, object] | None = None,
    ) -> None:
        if control_mode not in CONTROL_MODES:
            raise BLSError(f"control_mode: got {control_mode!r}, expected one of {', '.join(map(repr, CONTROL_MODES))}")
        if poll_seconds is not None and not poll_seconds > 0:
            raise BLSError(f"poll_seconds: got {poll_seconds!r}, expected a number above 0, or None")
        self.paths = paths
        self.fill = fill
        self.control_mode = control_mode
        self.service = Service(self, ResponseCache(cache_bytes), strict)
        self.server = self.service.server
        self.server.backend_folders = backend_folders
        index = self.service.index
        self.known = Known(index.newest, partial(index.rows, paths), pb_utils.__all__, self.server.elsewhere)
        self.metrics = Metrics(partial(server_families, weakref.ref(self.server)))
        self.metric_family = self.metrics.family
        self._definitions: dict[str, ModelSource] = {}
        self._configs: dict[str, object] = {}
        self.before_load: list[Callable[[ModelSource], ModelSource]] = []  # hooks that change the source of a folder
        self._polling = FolderPolling(paths, self._definitions, self._load_on_request, self.service.unload)

    @change
    def start(self, poll_seconds: float | None) -> None:
        """Load the models that the control mode requires, and start polling."""
        undo(partial(self.service.close, 0))
        self._polling.follow()
        if self.control_mode == "poll" and poll_seconds is not None:
            self.service.poller = Poller(weakref.WeakMethod(self._polling.follow), poll_seconds)

    @change
    def define(
        self,
        name: str,
        source: str,
        config: Config | ModelConfigMessage | None,
        version: int,
        notebook_names: Collection[str] | None,
        place: SourcePlace | None = None,
    ) -> ModelRecord:
        """Define a model by its source and load it."""
        check_model_name(name)
        check_version(version)
        if not isinstance(source, str):
            raise BLSError(f"model {name!r}: source: got {type(source).__name__}, expected the text of model.py")
        if config is None:
            config = self._configs.get(name)
        self._load_members(ModelSource(name, Path(), "cell", config), (), set())
        with self.service.lock_of(name):
            try:
                code = source.encode("utf-8")
            except UnicodeEncodeError as error:
                raise BLSError(f"model {name!r}: source: {error}; expected text that UTF-8 can encode") from error
            numbered = source if place is None else place.numbered(source)
            warnings = undefined_name_warnings(numbered, name, notebook_names)
            warnings += stray_import_warnings(numbered, name)
            warnings += model_class_warnings(numbered, name)
            if warnings and self.server.strict:
                raise ModelLoadError(f"{'; '.join(warnings)} (strict)", name)
            folder = self.service.folder.write(name, {f"{version}/model.py": code})
            if place is None:
                place = SourcePlace(str(folder / str(version) / "model.py"), f"{name}/{version}/model.py")
            model = ModelSource(name, folder, "cell", config, warnings=warnings, place=place)
            previous = self._definitions.get(name)
            before = texts_of(self.server.find(name)) if previous is not None else {}
            record = self.service.load_written(model)
            self._definitions[name] = model
            record = replace(record, changes=changes(before, texts_of(self.server.find(name))))
            if previous is not None:
                self.service.folder.discard(previous.folder)
        self.service.dependencies.add_explicit(name)
        self._refresh_users(name)
        return record

    @change
    def set_config(self, name: str, config: Config) -> ModelRecord | None:
        """Set a model's config.pbtxt; reload the model if it serves."""
        check_model_name(name)
        if ensembles.members_of(parse_config(config, model=name)):
            record: ModelRecord | None = self.define(name, "", config, 1, None)
            self._configs[name] = config
            return record
        with self.service.lock_of(name):
            record = None
            if self.server.serving(name) and name in self._definitions:
                source = replace(self._definitions[name], config=config)
                old, before = self.service.index.newest(name), texts_of(self.server.find(name))
                record = self.service.load(source, keep=True)
                record = replace(record, changes=changes(before, texts_of(self.server.find(name))))
                lost = () if old is None else _lost_tensors(old, record)
                record = replace(record, warnings=record.warnings + lost)
                self._definitions[name] = source
            self._configs[name] = config
        if record is not None:
            self._refresh_users(name)
        return record

    @change
    def load(self, name: str, config: Config | None, files: Mapping[str, bytes] | None) -> ModelRecord:
        """Load a model, or reload it if its files have changed."""
        check_model_name(name)
        self._may_control(name, "load")
        return self._load_on_request(name, config, files)

    def load_by_model(self, name: str, config: str, files: dict[str, bytes] | None) -> None:
        with _tritons_reasons(name):
            self.load(name, config or None, files)

    def unload_by_model(self, name: str, unload_dependents: bool) -> None:
        with _tritons_reasons(name):
            self.unload(name, unload_dependents)

    @change
    def reload(self, name: str) -> ModelRecord:
        """Load a model again from its files or its cell, even if they have not changed."""
        check_model_name(name)
        source = self._source(name, None)
        self._load_members(source, (), set())
        with self.service.lock_of(name):
            record = self._load_source(self._latest(source, None))
        self._refresh_users(name)
        return record

    @change
    def serve_source(self, source: ModelSource, define: bool = False) -> ModelRecord:
        """Serve a model with a stub or a remote server until `reload`; with `define`, also after it."""
        name = source.name
        with self.service.lock_of(name):
            record = self._load_source(source)
            if define:
                self._definitions[name] = source
        self.service.dependencies.add_explicit(name)
        self._refresh_users(name)
        return record

    def forget(self, name: str) -> None:
        """Forget a defined model that has left service, and remove its files."""
        source = self._definitions.pop(name, None)
        if source is not None:
            self.service.folder.discard(source.folder)
        self.service.index.forget(name)

    @change
    def unload(self, name: str, unload_dependents: bool) -> None:
        """Take a model out of service; requests in flight finish first."""
        if not isinstance(name, str):
            check_model_name(name)  # raises
        self._may_control(name, "unload")
        left = self.service.unload(name, unload_dependents)
        if caller_var.get() is None:  # a model that unloads itself would wait forever
            with progress(f"unloading {name}: requests in flight finish first"):
                wait_until_closed(left)

    @change
    def clear(self, keep_folders: bool = False) -> None:
        """Unload every model and forget the models of cells; `keep_folders`: keep unmodified models of folders."""
        self.service.not_by_a_model("clear")
        left = self.server.names()
        if keep_folders:
            sources = self.service.sources
            left = [
                n for n in left if sources[n].config_is_json or sources[n].stub is not None or n in self._definitions
            ]
        try:
            with progress("unloading every model: requests in flight finish first"):
                wait_until_closed(m for name in left for m in self.service.unload(name))
        finally:  # also on Ctrl-C
            self.server.last_failure = None  # its traceback would keep the model alive
            for source in list(self._definitions.values()):
                self.service.folder.discard(source.folder)
            self._definitions.clear()
            self._configs.clear()
            if keep_folders:
                self.service.index.forget_unloaded()
            else:
                self.service.dependencies.clear()
                self.service.index.clear()

    @change
    def poll(self) -> list[str]:
        """Check the folders now; return the names of the models that were loaded or unloaded."""
        if self.control_mode != "poll":
            raise BLSError(
                f"poll: the repository's control_mode is {self.control_mode!r}; create it with control_mode='poll'"
            )
        return self._polling.follow()

    def ready(self, name: str, version: int | None) -> bool:
        """Whether the given version of a model serves; None: any version."""
        check_model_name(name)
        if version is not None:
            check_version(version)
        model = self.server.find(name, -1 if version is None else version)
        return model is not None and model.ready()

    def ready_model(self, name: str) -> LoadedModel:
        """Return the newest version in service of a model, or raise ModelNotFoundError."""
        check_model_name(name)
        model = self.server.find(name)
        if model is None:
            self.service.refuse_if_closed(name)
            raise ModelNotFoundError(f"model {name!r} is not loaded; {missing_model(name, self.known)}")
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

    def _load_on_request(
        self, name: str, config: Config | None = None, files: Mapping[str, bytes] | None = None
    ) -> ModelRecord:
        record = self._load_named(name, config, files)
        self.service.dependencies.add_explicit(name)
        return record

    def _load_named(
        self,
        name: str,
        config: Config | None = None,
        files: Mapping[str, bytes] | None = None,
        chain: tuple[str, ...] = (),
        tried: set[str] | None = None,
    ) -> ModelRecord:
        """Load a model after the models of its steps; `chain`: the ensembles that need it, outermost first.

        Steps that are in `tried` and in service are not loaded again: an ensemble can need a model in many ways.
        """
        if files and config is None:
            raise ModelLoadError(
                f"model {name!r}: got files without a config; pass config as JSON text, too",
                name,
                POLL_FAILED.format(name=name),
            )
        source = ModelSource(name, Path(), "files", config, True) if files else self._source(name, config)
        try:
            self._load_members(source, chain, set() if tried is None else tried)
        except ModelLoadError as error:
            self.service.index.failed(source, str(error))
            raise
        with self.service.lock_of(name):
            if files:
                folder = self.service.folder.from_overrides(name, files)
                record = self.service.load_written(replace(source, folder=folder))
            else:
                source = self._latest(source, config)
                serving = self.server.serving(name)
                if config is None and serving and self.service.signatures.get(name) == signature(source.folder):
                    return self.service.index.record(name, max(serving))
                record = self._load_source(source, keep=True)
        self._refresh_users(name)
        return record

    def _load_source(self, source: ModelSource, keep: bool = False) -> ModelRecord:
        before = signature(source.folder)  # taken before the load, so that a file changed meanwhile is reloaded
        record = self.service.load(source, keep)
        self.service.signatures[source.name] = before
        return record

    def _source(self, name: str, config: object) -> ModelSource:
        source = self._definitions.get(name)
        if source is None:
            from .config.templates import filled_config  # first needed here

            folder = find_model(self.paths, name)
            filled, warnings = filled_config(config_text(folder), self.fill, name)
            source = ModelSource(name, folder, shown_path(folder), filled, warnings=warnings)
            for hook in list(self.before_load):
                source = hook(source)
        return source if config is None else replace(source, config=config, config_is_json=True)

    def _latest(self, source: ModelSource, config: object) -> ModelSource:
        """Return the model's current source: a cell may have run while this thread waited for the lock."""
        return self._source(source.name, config) if source.name in self._definitions else source

    def _load_members(self, source: ModelSource, chain: tuple[str, ...], tried: set[str]) -> None:
        name = source.name
        chain = (*chain, name)
        if len(chain) > _MOST_NESTED:
            refuse_ensemble(name, f"ensembles are nested more than {_MOST_NESTED} deep", "use fewer ensembles")
        members = list(filter(None, ensembles.members_of_source(source)))  # the load rejects a step without a model
        for member in members:
            if member in chain:
                reason = f"circular dependency between ensembles: {member} -> ... -> {name} -> {member}"
                refuse_ensemble(name, reason, "an ensemble cannot be a step of itself", ensembles.CircularEnsembleError)
            if not self.server.serving(member) and member not in self._definitions:
                try:
                    find_model(self.paths, member)
                except BLSError:
                    ensembles.refuse_missing(name, member)
        for member in members:
            if (member in tried or member in self._definitions) and self.server.serving(member):
                continue
            tried.add(member)
            try:
                self._load_named(member, chain=chain, tried=tried)
            except (ConfigError, ModelNotFoundError, ModelLoadError) as error:
                if not self.server.serving(member):
                    ensembles.refuse_member(name, member, error)
                log.warning("%s; ensemble '%s' uses the version in service", error, name)

    def _refresh_users(self, name: str) -> None:
        """Reload the ensembles that need this model, each once and after its steps, because the model has changed."""
        failed = set[str]()
        for user in self.service.dependencies.all_users(name):
            try:
                with self.service.lock_of(user):
                    current = self.service.dependencies.wanted(user)
                    if current is None:  # another thread unloaded it
                        continue
                    if not failed.isdisjoint(ensembles.members_of_source(current)):
                        failed.add(user)
                        continue
                    self.service.load(current)
            except BLSError as error:
                failed.add(user)
                log.warning("%s; the ensemble leaves service", error)
                self.service.take_out_users(user)
                self.service.take_out(user, f"unloaded: {error}")
