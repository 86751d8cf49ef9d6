"""`Catalog`: which models there are, and what is loaded when.

Models load in Triton's three modes. ``explicit``: on request. ``none``: all of the repository's models load
at the start, and stay. ``poll``: as ``none``, and from then on the repository follows its folders.

Guarantees: the models of an ensemble's steps load before it does; an ensemble that has left service with one
of them comes back when that does. No lock of one model is held while another's is taken. Ctrl-C ends
what a model does, or a wait, and is raised once all that was under way is in order again.
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
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.errors import BLSError, ConfigError, InvalidNameError, ModelLoadError, ModelNotFoundError
from bls_notebook.engine.metrics import Metrics
from bls_notebook.engine.schedulers.response_cache import ResponseCache
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.progress import progress
from bls_notebook.records.advice import Known, missing_model

from .config import ModelConfigMessage, parse_config
from .loading.ensembles import (
    CircularEnsembleError,
    members_of,
    members_of_source,
    refuse_ensemble,
    refuse_member,
    refuse_missing,
)
from .loading.loader import POLL_FAILED
from .locks import undivided
from .metric_families import server_families
from .polling import FolderPolling, Poller
from .service import Service, wait_until_closed
from .source.definition_changes import changes, texts_of
from .source.fingerprints import signature
from .source.layout import config_text, find_model, shown_path
from .source.model_source import ModelSource, SourcePlace
from .source.names import check_model_name, check_version
from .source.syntax import model_class_warnings, stray_import_warnings, undefined_name_warnings

if TYPE_CHECKING:
    from bls_notebook.records.repository import ModelRecord


Config = str | Mapping[str, Any]


class ForModels:
    """What the server is given to load and unload at the request of models (`engine.core.server.Loader`)."""

    def __init__(
        self,
        load: Callable[[str, Config | None, Mapping[str, bytes] | None], object],
        unload: Callable[[str, bool], object],
        family: Callable[[str, str, str], Any],
    ) -> None:
        self._load, self._unload, self.metric_family = load, unload, family

    def load_by_model(self, name: str, config: str, files: dict[str, bytes] | None) -> None:
        with _words_of_triton(name):
            self._load(name, config or None, files)

    def unload_by_model(self, name: str, unload_dependents: bool) -> None:
        with _words_of_triton(name):
            self._unload(name, unload_dependents)


@contextmanager
def _words_of_triton(name: str) -> Iterator[None]:
    try:
        yield
    except (ModelLoadError, ConfigError) as error:
        raise ModelLoadError(error.reason or str(error), name) from error
    except (ModelNotFoundError, InvalidNameError) as error:
        reason = getattr(error, "reason", "") or POLL_FAILED.format(name=name)
        raise ModelLoadError(reason, name) from error


ControlMode = Literal["explicit", "none", "poll"]
CONTROL_MODES: tuple[ControlMode, ...] = ("explicit", "none", "poll")
_NOT_EXPLICIT = "explicit model load / unload is not allowed if polling is enabled"

log = logging.getLogger("bls_notebook")


class Catalog:
    """The models of a repository; `ModelRepository` has the same methods, with their help."""

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
        for_models = ForModels(self.load, self.unload, lambda *of: self.metrics.family(*of))
        self.service = Service(for_models, ResponseCache(cache_bytes), strict)
        self.server = self.service.server
        self.server.backend_folders = backend_folders
        index = self.service.index
        self.known = Known(index.newest, partial(index.rows, paths), pb_utils.__all__)
        self.metrics = Metrics(partial(server_families, weakref.ref(self.server)))
        self._definitions: dict[str, ModelSource] = {}
        self._configs: dict[str, object] = {}
        self.before_load: list[Callable[[ModelSource], ModelSource]] = []  # change sources of folders
        self._polling = FolderPolling(paths, self._definitions, self._load_asked, self.service.unload)

    def start(self, poll_seconds: float | None) -> None:
        """Load what the mode says, and begin to poll."""
        if self.control_mode != "explicit":
            self._polling.follow()
        if self.control_mode == "poll" and poll_seconds is not None:
            self.service.poller = Poller(weakref.WeakMethod(self._polling.follow), poll_seconds)

    @undivided
    def define(
        self,
        name: str,
        source: str,
        config: Config | ModelConfigMessage | None,
        version: int,
        notebook_names: Collection[str] | None,
        place: SourcePlace | None = None,
    ) -> ModelRecord:
        """Define a model by its source, and load it."""
        check_model_name(name)
        check_version(version)
        if not isinstance(source, str):
            raise BLSError(f"model {name!r}: source: got {type(source).__name__}, expected the text of model.py")
        if config is None:
            config = self._configs.get(name)
        self._load_members(ModelSource(name, Path(), "cell", config), ())
        with self.service.lock_of(name):
            try:
                code = source.encode("utf-8")
            except UnicodeEncodeError as error:
                raise BLSError(f"model {name!r}: source: {error}; expected text that has a UTF-8 form") from error
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
        self.service.dependencies.asked_for(name)
        self._refresh_users(name)
        return record

    @undivided
    def set_config(self, name: str, config: Config) -> ModelRecord | None:
        """Give a model's config.pbtxt; load again what serves with it."""
        check_model_name(name)
        if members_of(parse_config(config, model=name)):
            record: ModelRecord | None = self.define(name, "", config, 1, None)
            self._configs[name] = config
            return record
        with self.service.lock_of(name):
            record = None
            if self.server.serving(name) and name in self._definitions:
                source = replace(self._definitions[name], config=config)
                before = texts_of(self.server.find(name))
                record = self.service.load(source, keep=True)
                record = replace(record, changes=changes(before, texts_of(self.server.find(name))))
                self._definitions[name] = source
            self._configs[name] = config
        if record is not None:
            self._refresh_users(name)
        return record

    @undivided
    def load(self, name: str, config: Config | None, files: Mapping[str, bytes] | None) -> ModelRecord:
        """Load a model, or load it again; what is loaded and unchanged is left as it is."""
        check_model_name(name)
        self._may_control(name, "load")
        return self._load_asked(name, config, files)

    @undivided
    def reload(self, name: str) -> ModelRecord:
        """Load a model again from its files or its cell, also where they have not changed."""
        check_model_name(name)
        source = self._source(name, None)
        self._load_members(source, ())
        with self.service.lock_of(name):
            record = self._load_source(self._still(source, None))
        self._refresh_users(name)
        return record

    @undivided
    def stand_in(self, source: ModelSource, define: bool = False) -> ModelRecord:
        """Serve a model by a stub, or by a server elsewhere, until `reload`; with `define`, from then on."""
        name = source.name
        with self.service.lock_of(name):
            record = self._load_source(source)
            if define:
                self._definitions[name] = source
        self.service.dependencies.asked_for(name)
        self._refresh_users(name)
        return record

    def forget(self, name: str) -> None:
        """Know no more of a model that was defined, and serves no more."""
        source = self._definitions.pop(name, None)
        if source is not None:
            self.service.folder.discard(source.folder)
        self.service.index.forget(name)

    @undivided
    def unload(self, name: str, unload_dependents: bool) -> None:
        """Take a model out of service; requests in flight are finished first."""
        if not isinstance(name, str):
            check_model_name(name)  # says what is wrong with it
        self._may_control(name, "unload")
        left = self.service.unload(name, unload_dependents)
        if caller_var.get() is None:  # a model that unloads itself cannot wait for its own end
            with progress(f"unloading {name}: requests under way are finished first"):
                wait_until_closed(left)

    @undivided
    def clear(self, keep_folders: bool = False) -> None:
        """Unload every model, and forget those of cells; `keep_folders`: not those that are as in folders."""
        self.service.not_by_a_model("clear")
        left = self.server.names()
        if keep_folders:
            sources = self.service.sources
            left = [
                n for n in left if sources[n].config_is_json or sources[n].stub is not None or n in self._definitions
            ]
        try:
            with progress("unloading every model: requests under way are finished first"):
                wait_until_closed(m for name in left for m in self.service.unload(name))
        finally:  # also on Ctrl-C
            self.server.last_failure = None  # its frames would keep its model
            for source in list(self._definitions.values()):
                self.service.folder.discard(source.folder)
            self._definitions.clear()
            self._configs.clear()
            if keep_folders:
                self.service.index.forget_unloaded()
            else:
                self.service.dependencies.clear()
                self.service.index.clear()

    @undivided
    def poll(self) -> list[str]:
        """Look at the folders now; return the names of the models that were loaded or unloaded."""
        if self.control_mode != "poll":
            raise BLSError(
                f"poll: the repository's control_mode is {self.control_mode!r}; make it with control_mode='poll'"
            )
        return self._polling.follow()

    def ready(self, name: str, version: int | None) -> bool:
        """Whether a model serves: the given version, or any."""
        check_model_name(name)
        if version is not None:
            check_version(version)
        model = self.server.find(name, -1 if version is None else version)
        return model is not None and model.ready()

    def ready_model(self, name: str) -> LoadedModel:
        """Return the newest version of a model that serves, or raise ModelNotFoundError."""
        check_model_name(name)
        model = self.server.find(name)
        if model is None:
            raise ModelNotFoundError(f"model {name!r} is not loaded; {missing_model(name, self.known)}")
        return model

    def _may_control(self, name: str, verb: str) -> None:
        """Refuse to load or unload on request, except cells, where the mode does not allow it."""
        if self.control_mode != "explicit" and name not in self._definitions:
            raise ModelLoadError(
                f"model {name!r}: cannot {verb} it: the repository loads its models itself "
                f"(control_mode={self.control_mode!r}); use control_mode='explicit'",
                name,
                _NOT_EXPLICIT,
            )

    def _load_asked(
        self, name: str, config: Config | None = None, files: Mapping[str, bytes] | None = None
    ) -> ModelRecord:
        record = self._load_named(name, config, files)
        self.service.dependencies.asked_for(name)
        return record

    def _load_named(
        self,
        name: str,
        config: Config | None = None,
        files: Mapping[str, bytes] | None = None,
        chain: tuple[str, ...] = (),
    ) -> ModelRecord:
        """Load a model, after those of its steps; `chain` are the ensembles that it is loaded for."""
        if files and config is None:
            raise ModelLoadError(
                f"model {name!r}: files were given without a config; give config as JSON text too",
                name,
                POLL_FAILED.format(name=name),
            )
        source = ModelSource(name, Path(), "files", config, True) if files else self._source(name, config)
        try:
            self._load_members(source, chain)
        except ModelLoadError as error:
            self.service.index.failed(source, str(error))
            raise
        with self.service.lock_of(name):
            if files:
                folder = self.service.folder.from_overrides(name, files)
                record = self.service.load_written(replace(source, folder=folder))
            else:
                source = self._still(source, config)
                serving = self.server.serving(name)
                if config is None and serving and self.service.signatures.get(name) == signature(source.folder):
                    return self.service.index.record(name, max(serving))
                record = self._load_source(source, keep=True)
        self._refresh_users(name)
        return record

    def _load_source(self, source: ModelSource, keep: bool = False) -> ModelRecord:
        found = signature(source.folder)  # before the load: files that change meanwhile are loaded again
        record = self.service.load(source, keep)
        self.service.signatures[source.name] = found
        return record

    def _source(self, name: str, config: object) -> ModelSource:
        source = self._definitions.get(name)
        if source is None:
            from .config.templates import filled_config  # first needed here

            folder = find_model(self.paths, name)
            found, told = filled_config(config_text(folder), self.fill, name)
            source = ModelSource(name, folder, shown_path(folder), found, warnings=told)
            for change in list(self.before_load):
                source = change(source)
        return source if config is None else replace(source, config=config, config_is_json=True)

    def _still(self, source: ModelSource, config: object) -> ModelSource:
        """The source of a model again, now that its turn has come: a cell may have run meanwhile."""
        return self._source(source.name, config) if source.name in self._definitions else source

    def _load_members(self, source: ModelSource, chain: tuple[str, ...]) -> None:
        name = source.name
        chain = (*chain, name)
        members = list(filter(None, members_of_source(source)))  # a step without a model is refused later
        for member in members:
            if member in chain:
                words = f"circular dependency between ensembles: {member} -> ... -> {name} -> {member}"
                refuse_ensemble(name, words, "an ensemble cannot be a step of itself", CircularEnsembleError)
            if not self.server.serving(member) and member not in self._definitions:
                try:
                    find_model(self.paths, member)
                except BLSError:
                    refuse_missing(name, member)
        for member in members:
            if member in self._definitions and self.server.serving(member):
                continue
            try:
                self._load_named(member, chain=chain)
            except (ConfigError, ModelNotFoundError, ModelLoadError) as error:
                if not self.server.serving(member):
                    refuse_member(name, member, error)
                log.warning("%s; ensemble '%s' goes on with the one that serves", error, name)

    def _refresh_users(self, name: str) -> None:
        """Check the ensembles that have a model as a step again, now that it has changed."""
        for source in self.service.dependencies.users(name):
            try:
                with self.service.lock_of(source.name):
                    current = self.service.dependencies.wanted(source.name)
                    if current is None:  # somebody has unloaded it meanwhile
                        continue
                    self.service.load(current)
            except BLSError as error:
                log.warning("%s: it leaves service", error)
                self.service.take_out_users(source.name)
                self.service.take_out(source.name, f"unloaded: {error}")
            else:
                self._refresh_users(source.name)
