"""`ModelRepository`: models on disk and in cells, loaded into this process.

Guarantees: loads of one name happen one after the other, of different names side by side; a load that
fails leaves in service what was; a replacement is one step, and the requests of the version that left
are finished before it is finalized; no name and no file override leads out of its model's folder. Ctrl-C ends
what a model does, or a wait, and is raised once all that was under way is in order again. `close` returns in
time, and with an answer for every request.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.errors import BLSError, ModelLoadError, ModelNotFoundError, RepositoryClosedError
from bls_notebook.engine.schedulers.response_cache import DEFAULT_CACHE_BYTES, ResponseCache
from bls_notebook.observe.metrics import Metrics
from bls_notebook.observe.records.repository import ModelRecord
from bls_notebook.pb_utils._runtime import caller_var

from .closing import Closing
from .config import ModelConfigMessage
from .control import ControlMode, ModelControl, undivided
from .ending import opened, wait_until_closed
from .for_models import ForModels
from .loading.ensembles import members_of
from .loading.loader import POLL_FAILED, load_versions
from .loading.python_backends import backend_folders, backend_path
from .records import model_record, unavailable_record
from .requests.sender import Requests
from .server_metrics import ServerFamilies
from .source.fingerprint import signature
from .source.layout import find_model, model_names, repository_paths, shown_path, version_folders
from .source.model_source import ModelSource, SourceFolder
from .source.names import check_model_name, check_version
from .source.notebook_globals import undefined_name_warnings
from .source.notebook_imports import stray_import_warnings
from .statistics import Measured
from .turns import Turn

__all__ = ["ModelRepository"]


class ModelRepository(Requests, ModelControl, Measured, ForModels, Closing):
    """A Triton model repository, hosted in this process.

    Parameters
    ----------
    *paths : str, Path, or list of these
        Folders in Triton's layout; none for models in memory only. Nothing is loaded at first.
    strict : bool
        Whether what Triton would pass in silence (`Response.warnings`) fails the request.
    control_mode : str
        ``"explicit"``: models load and unload on request. ``"none"``: all that lie in `paths` are loaded
        now, for good. ``"poll"``: so are they, and then follow what changes in the folders. Models that
        fail to load are logged, and `index` says why. Cells can be defined in any mode.
    poll_seconds : float or None
        How often folders are looked at in mode ``"poll"``; None for only when `poll` is called.
    backend_directory : str or Path, optional
        Where Python-based backends are: ``backend: "name"`` without a backend of that name here is run by
        ``<backend_directory>/name/model.py``. Default: `backends`, beside the folders in `paths` or in them.
    cache_bytes : int
        Size of the response cache, which models with ``response_cache { enable: true }`` share; 0 for none
        (as a server that was started without ``--cache-config``).

    Raises
    ------
    BLSError
        A path, or `backend_directory`, is not a folder.

    Examples
    --------
    >>> with ModelRepository("model_repository") as repo:
    ...     repo.load("add_sub")
    ...     repo.infer("add_sub", {"INPUT0": [1, 2], "INPUT1": [3, 4]})["OUTPUT0"].as_numpy()
    """

    def __init__(
        self,
        *paths: str | Path | Sequence[str | Path],
        strict: bool = False,
        control_mode: ControlMode = "explicit",
        poll_seconds: float | None = 15.0,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        backend_directory: str | Path | None = None,
    ) -> None:
        flat: list[str | Path] = []
        for path in paths:
            flat.extend(path if isinstance(path, (list, tuple)) else [path])  # type: ignore[list-item]
        self.paths = repository_paths(flat)
        self.backend_directory = backend_path(backend_directory)
        self._server = Server(self, ResponseCache(cache_bytes), strict)
        self._server.backend_folders = backend_folders(self.paths, self.backend_directory)
        self.metrics = Metrics(ServerFamilies(self._server).collect)
        self._folder = SourceFolder()
        self._lock = threading.Lock()
        self._loading: dict[str, Turn] = {}
        self._definitions: dict[str, ModelSource] = {}
        self._configs: dict[str, object] = {}
        self._records: dict[str, dict[int, ModelRecord]] = {}
        self._signatures: dict[str, object] = {}
        self._closed = False
        self._set_up_control(control_mode, poll_seconds)
        self._remove_files = weakref.finalize(self, self._folder.close)
        opened(self)
        self._begin_control(poll_seconds)

    # -- defining and loading ----------------------------------------------------------------------

    @undivided
    def define(
        self,
        name: str,
        source: str,
        config: str | Mapping[str, Any] | ModelConfigMessage | None = None,
        version: int = 1,
        notebook_names: Collection[str] | None = None,
    ) -> ModelRecord:
        """Define a model by its source, and load it; what ``%%tritonmodel`` calls.

        Parameters
        ----------
        name : str
            Name of the model; one of the same name is replaced once the new one has loaded.
        source : str
            Of model.py.
        config : str, dict or ModelConfig, optional
            Of config.pbtxt; without it the one given by `set_config`, else the model's
            `auto_complete_config`.
        version : int
            Number of the version.
        notebook_names : collection of str, optional
            Variables of the notebook: what the source reads of them without defining it is told in the
            record's warnings. (Names that are defined nowhere are told in any case.)

        Returns
        -------
        ModelRecord

        Raises
        ------
        InvalidNameError, ConfigError, ModelLoadError
            Nothing has changed then: a version that was serving still serves.
        """
        check_model_name(name)
        check_version(version)
        if not isinstance(source, str):
            raise BLSError(
                f"model {name!r}: source: got {type(source).__name__}, expected the text of model.py"
            )
        if config is None:
            config = self._configs.get(name)
        self._prepare(ModelSource(name, Path(), "cell", config), ())
        with self._loading_of(name):
            try:
                code = source.encode("utf-8")
            except UnicodeEncodeError as error:
                raise BLSError(
                    f"model {name!r}: source: {error}; expected text that has a UTF-8 form"
                ) from error
            warnings = undefined_name_warnings(source, name, notebook_names)
            warnings += stray_import_warnings(source, name)
            if warnings and self.strict:
                raise ModelLoadError(f"{'; '.join(warnings)} (strict)", name)
            folder = self._folder.write(name, {f"{version}/model.py": code})
            model = ModelSource(name, folder, "cell", config, warnings=warnings)
            try:
                record = self._load(model)
            except BaseException:
                self._folder.discard(folder)
                raise
            previous = self._definitions.get(name)
            self._definitions[name] = model
            if previous is not None:
                self._folder.discard(previous.folder)
        self._dependencies.asked_for(name)
        self._refresh_users(name)
        return record

    @undivided
    def set_config(self, name: str, config: str | Mapping[str, Any]) -> ModelRecord | None:
        """Give a model's config.pbtxt; what ``%%tritonconfig`` calls.

        It is checked now and used by the next `define`. A model that serves is loaded again with it at
        once, and its record is returned; where only the instance groups differ, the instances that it has in
        common with them stay. An ensemble needs nothing else, so it is loaded at once.

        Raises
        ------
        ConfigError, ModelLoadError
            The config is not taken then.
        """
        from .config import parse_config

        check_model_name(name)
        if members_of(parse_config(config, model=name)):
            record: ModelRecord | None = self.define(name, "", config)
            self._configs[name] = config
            return record
        with self._loading_of(name):
            record = None
            if self._server.serving(name) and name in self._definitions:
                source = replace(self._definitions[name], config=config)
                record = self._load(source, keep=True)
                self._definitions[name] = source
            self._configs[name] = config
        if record is not None:
            self._refresh_users(name)
        return record

    @undivided
    def load(
        self,
        name: str,
        config: str | Mapping[str, Any] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> ModelRecord:
        """Load a model, or load it again; what is loaded and unchanged is left as it is.

        The models of an ensemble's steps are loaded with it. Of several versions only those that changed
        are loaded again; where only the instance groups changed, instances come or leave and the others go on
        as they are. Those that leave finish what they run first, which is not waited for.

        Parameters
        ----------
        name : str
        config : str or dict, optional
            Configuration as JSON text, or a dict, instead of config.pbtxt.
        files : mapping of str to bytes, optional
            ``file:<version>/<name>`` to contents, instead of the files on disk; needs `config`.

        Returns
        -------
        ModelRecord
            Of the newest version.

        Raises
        ------
        ModelNotFoundError, InvalidNameError, ConfigError, ModelLoadError
            What was serving still serves.
        """
        check_model_name(name)
        self._may_control(name, "load")
        record = self._load_named(name, config, files)
        self._dependencies.asked_for(name)
        return record

    def _load_named(
        self,
        name: str,
        config: str | Mapping[str, Any] | None = None,
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
            self._prepare(source, chain)
        except ModelLoadError as error:
            self._note_failed(source, str(error))
            raise
        with self._loading_of(name):
            if files:
                folder = self._folder.from_overrides(name, files)
                try:
                    record = self._load(replace(source, folder=folder))
                except BaseException:
                    self._folder.discard(folder)
                    raise
            else:
                source = self._still(source, config)
                found = signature(source.folder)
                serving = self._server.serving(name)
                if config is None and serving and self._signatures.get(name) == found:
                    return self._records[name][max(serving)]
                record = self._load(source, keep=True)
                self._signatures[name] = found
        self._refresh_users(name)
        return record

    @undivided
    def reload(self, name: str) -> ModelRecord:
        """Load a model again from its files or its cell, also where they have not changed."""
        check_model_name(name)
        source = self._source(name, None)
        self._prepare(source, ())
        with self._loading_of(name):
            source = self._still(source, None)
            found = signature(source.folder)
            record = self._load(source)
            self._signatures[name] = found
        self._refresh_users(name)
        return record

    @undivided
    def unload(self, name: str, unload_dependents: bool = False) -> None:
        """Take a model out of service; requests in flight are finished first.

        A model that is not loaded is no error, as in Triton, nor is a name that none can have. Ensembles that
        have it as a step leave service with it, and come back when it does. Called by a model, it does not
        wait.

        Parameters
        ----------
        name : str
        unload_dependents : bool
            Of an ensemble: whether the models of its steps are unloaded too, those that were loaded for it
            alone.
        """
        if not isinstance(name, str):
            check_model_name(name)  # says what is wrong with it
        self._may_control(name, "unload")
        left = self._unload_named(name, unload_dependents)
        if caller_var.get() is None:  # a model that unloads itself cannot wait for its own end
            wait_until_closed(left)

    @undivided
    def clear(self) -> None:
        """Unload every model, and forget those of cells.

        Raises
        ------
        BLSError
            It was called by a model of this repository.
        """
        self._not_by_a_model("clear")
        try:
            wait_until_closed(m for name in self._server.names() for m in self._unload_named(name, False))
        finally:  # also on Ctrl-C
            self._dependencies.clear()
            self._server.last_failure = None  # its frames would keep its model
            for source in list(self._definitions.values()):
                self._folder.discard(source.folder)
            with self._lock:
                self._definitions.clear()
                self._configs.clear()
                self._records.clear()

    def _source(self, name: str, config: object) -> ModelSource:
        source = self._definitions.get(name)
        if source is None:
            return ModelSource.on_disk(name, find_model(self.paths, name), config)
        if config is not None:
            return replace(source, config=config, config_is_json=True)
        return source

    def _still(self, source: ModelSource, config: object) -> ModelSource:
        """The source of a model again, now that its name's lock is held: a cell may have run meanwhile."""
        return self._source(source.name, config) if source.name in self._definitions else source

    def _load(self, source: ModelSource, keep: bool = False) -> ModelRecord:
        """Load and put in service; the name's lock is held."""
        name = source.name
        self._refuse_if_closed(name)
        started = perf_counter()
        before = self._server.serving(name)
        specs = {version: model.spec for version, model in before.items()}
        try:
            loaded = load_versions(
                self._server, source, keep, lambda versions: self._note_loading(source, versions)
            )
        except OSError as error:  # its folder went away, or may not be looked into
            problem = ModelLoadError(f"model {name!r} could not be loaded: {error}", name)
            self._note_failed(source, str(problem))
            raise problem from error
        except BLSError as error:
            self._note_failed(source, str(error))
            raise
        seconds = perf_counter() - started
        self._signatures.pop(name, None)
        self._dependencies.want(source, self._members(source))
        records = {v: model_record(m, source.origin, seconds, source.warnings) for v, m in loaded.items()}
        for version, model in loaded.items():
            model.on_closed = self._has_left
            if before.get(version) is model and specs[version] is model.spec:
                records[version] = self._records[name][version]
        try:
            with self._lock:  # it may have been closed meanwhile
                self._refuse_if_closed(name)
                self._server.exchange(name, loaded)
        except BaseException:
            self._server.close_all(m for v, m in loaded.items() if before.get(v) is not m)
            raise
        self._leaving(name, [v for v in before if v not in loaded], "unloaded")
        self._records.setdefault(name, {}).update(records)
        self._server.close_all(m for v, m in before.items() if loaded.get(v) is not m)
        return records[max(records)]

    def _refuse_if_closed(self, name: str) -> None:
        if self._closed:
            raise RepositoryClosedError(
                f"model {name!r}: the repository is closed; make a new one: ModelRepository(...)"
            )

    def _loading_of(self, name: str) -> Turn:
        with self._lock:
            return self._loading.setdefault(name, Turn())

    # -- asking ------------------------------------------------------------------------------------

    def ready(self, name: str, version: int | None = None) -> bool:
        """Whether a model serves: the given version, or any."""
        check_model_name(name)
        if version is not None:
            check_version(version)
        model = self._server.find(name, -1 if version is None else version)
        return model is not None and model.ready()

    def index(self) -> list[ModelRecord]:
        """Return a record for every version of every model that is known, by name and version."""
        rows = {n: dict(r) for n, r in list(self._records.items())}
        for path in self.paths:
            for name in model_names([path]):
                if name not in rows:
                    versions = version_folders(path / name) or {1: path}
                    rows[name] = {
                        max(versions): unavailable_record(
                            name, max(versions), shown_path(path / name), "not loaded"
                        )
                    }
        return [record for name in sorted(rows) for _, record in sorted(rows[name].items())]

    def _ready_model(self, name: str) -> LoadedModel:
        check_model_name(name)
        model = self._server.find(name)
        if model is None:
            ready = ", ".join(self._server.names()) or "none"
            hint = "" if name not in model_names(self.paths) else "; load it first"
            raise ModelNotFoundError(f"model {name!r} is not loaded{hint}; loaded models: {ready}")
        return model

    def config(self, name: str) -> ModelConfigMessage:
        """Return the completed configuration of a model that serves, a copy.

        Raises
        ------
        ModelNotFoundError
        """
        config = self._ready_model(name).spec.config
        out = type(config)()
        out.CopyFrom(config)
        return out

    def record(self, name: str) -> ModelRecord:
        """Return the record of the newest version of a model that serves."""
        version = self._ready_model(name).version
        return self._records[name][version]

    @property
    def last_failure(self) -> BaseException | None:
        """The last exception that a model raised, with its traceback; for post-mortem debugging."""
        return self._server.last_failure

    # -- as a context manager and as text ----------------------------------------------------------

    def __enter__(self) -> ModelRepository:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        where = ", ".join(map(shown_path, self.paths)) or "memory"
        return f"<ModelRepository {where}: {len(self._server.names())} loaded>"
