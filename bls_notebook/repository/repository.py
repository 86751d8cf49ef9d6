"""`ModelRepository`: models on disk and in cells, loaded into this process; the public API.

`Catalog` knows the models and loads them; `Sender` sends requests to them. Magics and bare calls use the
current repository.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.model_code import run_body
from bls_notebook.engine.schedulers.response_cache import DEFAULT_CACHE_BYTES

from .catalog import Catalog, ControlMode
from .config import ModelConfigMessage
from .requests.response import Response
from .requests.sender import Sender, takes_arguments_of
from .shutdown import opened
from .source.layout import backend_folders, backend_path, repository_paths, shown_path
from .source.model_source import SourcePlace
from .statistics import statistics_of, statistics_record_of

if TYPE_CHECKING:
    from bls_notebook.records.errors import ErrorRecord
    from bls_notebook.records.repository import ModelRecord
    from bls_notebook.records.statistics import StatisticsRecord

    from .substitution.stub import ModelStub


class ModelRepository:
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
        Size of the response cache (``response_cache { enable: true }``), which all models share; 0 for none.
    fill : mapping of str to object, optional
        Values for templates such as ``${engine_dir}``, and parameters, by key; the environment and harmless
        defaults give the rest. None: nothing is filled, as on Triton.

    Raises
    ------
    BLSError
        A path, or `backend_directory`, is not a folder.

    Attributes
    ----------
    metrics : Metrics
        Of the models, and Triton's own: `metrics.text()` is what Prometheus reads.

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
        fill: Mapping[str, object] | None = None,
    ) -> None:
        self.fill = None if fill is None else dict(fill)
        model_folders = repository_paths(paths)
        self.backend_directory = backend_path(backend_directory)
        folders = backend_folders(model_folders, self.backend_directory)
        self._catalog = Catalog(model_folders, folders, control_mode, poll_seconds, cache_bytes, strict, self.fill)
        self._server = self._catalog.server
        self._sender = Sender(self._server, self._catalog.known)
        self.control_mode = control_mode
        self.metrics = self._catalog.metrics
        opened(self._catalog.service)
        self._catalog.start(poll_seconds)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The folders that models are looked for in."""
        return self._catalog.paths

    def ready(self, name: str, version: int | None = None) -> bool:
        """Whether a model serves: the given version, or any."""
        return self._catalog.ready(name, version)

    def index(self, folders: bool = True) -> list[ModelRecord]:
        """Return a record for every version of every model that is known, by name and version.

        Parameters
        ----------
        folders : bool
            Whether to list models in the folders that were never loaded, too.
        """
        return self._catalog.service.index.rows(self._catalog.paths if folders else ())

    def config(self, name: str) -> ModelConfigMessage:
        """Return the completed configuration of a model, a copy; ModelNotFoundError where none serves."""
        return deepcopy(self._catalog.ready_model(name).spec.config)

    def record(self, name: str) -> ModelRecord:
        """Return the record of the newest version of a model that serves."""
        return self._catalog.service.index.record(name, self._catalog.ready_model(name).version)

    def statistics(self, name: str) -> dict[str, Any]:
        """Return what a model has done, by version, in the shape of Triton's statistics.

        Times (``ns``) are in nanoseconds. Of an ensemble, ``compute_infer`` is the time of its steps, added
        up. Of a remote model they are its server's, of all who ask it. Where none of this name serves, it is
        a ModelNotFoundError.
        """
        self._catalog.ready_model(name)
        return {"model_stats": [statistics_of(model) for model in self._versions(name)]}

    def statistics_records(self, *names: str) -> list[StatisticsRecord]:
        """Return what models have done, by default all that serve: a record for each version.

        Where none of a name serves, it is a ModelNotFoundError.
        """
        for name in names:
            self._catalog.ready_model(name)
        models = [m for name in dict.fromkeys(names or self._server.names()) for m in self._versions(name)]
        return [statistics_record_of(model) for model in models]

    def _versions(self, name: str) -> list[LoadedModel]:
        return [model for _, model in sorted(self._server.serving(name).items())]

    @property
    def last_failure(self) -> BaseException | None:
        """The last exception that a model raised, with its traceback; for post-mortem debugging."""
        return self._server.last_failure

    def define(
        self,
        name: str,
        source: str,
        config: str | Mapping[str, Any] | ModelConfigMessage | None = None,
        version: int = 1,
        notebook_names: Collection[str] | None = None,
        place: SourcePlace | None = None,
    ) -> ModelRecord:
        """Define a model by its source, and load it; what ``%%tritonmodel`` calls.

        Parameters
        ----------
        name : str
            Name of the model; one of the same name is replaced once the new one has loaded.
        source : str
            Of model.py.
        config : str, dict or ModelConfig, optional
            Of config.pbtxt; without it the one given by `set_config`, else the model's `auto_complete_config`.
        version : int
            Number of the version.
        notebook_names : collection of str, optional
            Variables of the notebook: the record's warnings name those that the source reads.
        place : SourcePlace, optional
            Where the source was written: debuggers, tracebacks and messages name that file and its lines.

        Returns
        -------
        ModelRecord

        Raises
        ------
        InvalidNameError, ConfigError, ModelLoadError
            Nothing has changed then: a version that was serving still serves.
        """
        return self._catalog.define(name, source, config, version, notebook_names, place)

    def set_config(self, name: str, config: str | Mapping[str, Any]) -> ModelRecord | None:
        """Give a model's config.pbtxt; what ``%%tritonconfig`` calls.

        It is checked now and used by the next `define`. A model that serves is loaded again with it at once, and
        its record is returned; an ensemble needs nothing else, so it is loaded at once too.

        Raises
        ------
        ConfigError, ModelLoadError
            The config is not taken then.
        """
        return self._catalog.set_config(name, config)

    def load(
        self, name: str, config: str | Mapping[str, Any] | None = None, files: Mapping[str, bytes] | None = None
    ) -> ModelRecord:
        """Load a model, or load it again; what is loaded and unchanged is left as it is.

        The models of an ensemble's steps are loaded with it. Of several versions only those that changed are loaded
        again. If only the instance groups changed, instances are added, or leave once they have finished.

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
        return self._catalog.load(name, config, files)

    def reload(self, name: str) -> ModelRecord:
        """Load a model again from its files or its cell, also where they have not changed."""
        return self._catalog.reload(name)

    def unload(self, name: str, unload_dependents: bool = False) -> None:
        """Take a model out of service; requests in flight are finished first.

        A model that is not loaded is no error, as in Triton. Ensembles that have it as a step leave service with
        it, and come back when it does. Called by a model, it does not wait.

        Parameters
        ----------
        name : str
        unload_dependents : bool
            Of an ensemble: whether models that were loaded for its steps alone are unloaded too.
        """
        self._catalog.unload(name, unload_dependents)

    def clear(self, keep_folders: bool = False) -> None:
        """Unload every model, and forget those of cells; a BLSError if a model of the repository calls it.

        Parameters
        ----------
        keep_folders : bool
            Whether models stay loaded that are as they lie in the folders.
        """
        self._catalog.clear(keep_folders)

    def poll(self) -> list[str]:
        """Look at the folders now; load, load again and unload what has changed there.

        A model that fails to load is tried again the next time, as on Triton.

        Returns
        -------
        list of str
            Names of the models that were loaded or unloaded.

        Raises
        ------
        BLSError
            The mode is not ``poll``.
        """
        return self._catalog.poll()

    @takes_arguments_of(Sender.request)
    def infer(self, *arguments: Any, **options: Any) -> Response:
        """Send a request and wait for the answer.

        Parameters
        ----------
        name : str
            Name of the model.
        inputs : mapping of str to array
            Arrays are sent as they are; lists, numbers and text take the input's data type.
        outputs : sequence of str, optional
            Names of the outputs that are wanted; all by default.
        version : int
            -1 for the newest that is ready.
        preferred_memory : str or PreferredMemory, optional
            Where the outputs should be: ``"cpu"``, ``"gpu:0"``.
        timeout : int
            Microseconds, as in `pb_utils.InferenceRequest`.
        request_id, correlation_id, flags, parameters
            As in `pb_utils.InferenceRequest`. A parameter ``priority`` (a whole number) is the request's level in
            a dynamic batcher's queue and does not reach the model, as over HTTP.
        trace : bool, str or mapping, optional
            True begins a trace; W3C's ``traceparent``, or a mapping with it (what OpenTelemetry's
            ``propagate.inject`` fills in), joins one. The model sees it by ``request.trace()``.

        Returns
        -------
        Response
            Its `error` is set where the request failed; that is never raised.

        Raises
        ------
        BLSError
            A value of which no tensor can be made, or no traceparent.
        """
        return self._sender.send(self._sender.request(*arguments, **options))

    @takes_arguments_of(Sender.request)
    async def infer_async(self, *arguments: Any, **options: Any) -> Response:
        """Send a request and await the answer; as `infer`."""
        return await self._sender.send_async(self._sender.request(*arguments, **options))

    @takes_arguments_of(Sender.request)
    def stream(self, *arguments: Any, **options: Any) -> Iterator[Response]:
        """Send a request to a decoupled model and walk its responses as they arrive; as `infer`.

        A final flag that is sent alone makes the last response `final`. Leaving the iteration early cancels the
        request.
        """
        return self._sender.walk(self._sender.request(*arguments, **options))

    @takes_arguments_of(Sender.request)
    def stream_async(self, *arguments: Any, **options: Any) -> AsyncIterator[Response]:
        """Send a request to a decoupled model and await its responses one by one; as `stream`."""
        return self._sender.walk_async(self._sender.request(*arguments, **options))

    def run(self, function: Callable[[], Any], errors: list[ErrorRecord] | None = None) -> Any:
        """Run a function as the body of an `execute`, which may send BLS requests; return what it returns.

        Parameters
        ----------
        function : callable
            Without arguments; a coroutine function is awaited, in an event loop of its own.
        errors : list, optional
            To which the last errors are added that requests of the function were answered with.
        """
        return run_body(self._server, function, errors)

    def stub(
        self,
        model: str,
        answer: object = None,
        *,
        delay: float = 0.0,
        config: str | Mapping[str, Any] | None = None,
        clock: object = None,
    ) -> ModelStub:
        """Answer a model's requests by something else, as long as ``with`` lasts; see `docs/testing.md`.

        Parameters
        ----------
        model : str
            One that serves; one in the folders, which is not loaded; or any other, with `config`.
        answer : object
            Outputs by name; a function of the request that returns such, an `InferenceResponse` or an error, or of
            a decoupled model an iterable of these; an error (`TritonError`, an exception or text); a list of
            these, one for each request in turn; a recording; None: made up from the configuration.
        delay : float
            Seconds before each response; it ends with the request.
        config : str or dict, optional
            Configuration of a model that is in no folder.
        clock : object, optional
            Whose `wait` takes the delay's time, in place of the computer's clock.

        Returns
        -------
        ModelStub
            For ``with``. Its `calls` are the requests that came.
        """
        from .substitution.stub import ModelStub

        return ModelStub(self._catalog, model, answer, delay, config, clock)

    @property
    def strict(self) -> bool:
        """Whether warnings fail the request; may be set at any time."""
        return self._server.strict

    @strict.setter
    def strict(self, value: bool) -> None:
        self._server.set_strict(bool(value))

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._catalog.service.closed

    def close(self, seconds: float = 5.0) -> None:
        """Unload every model and remove what was written for those of cells; the second time, nothing.

        Parameters
        ----------
        seconds : float
            How long to wait for requests in flight and for `finalize`. Requests in flight are then answered with
            an error; a request that runs in its caller's own thread ends when its `execute` does.
        """
        self._catalog.service.close(seconds)

    def __enter__(self) -> ModelRepository:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = ", ".join(map(shown_path, self.paths)) or "memory"
        return f"<ModelRepository {where}: {len(self._server.names())} loaded>"


_lock = threading.Lock()
_current: ModelRepository | None = None


def current_repository() -> ModelRepository:
    """Return the repository that magics use; at first, one in memory only."""
    global _current
    with _lock:
        if _current is None:
            _current = ModelRepository()
        return _current


def set_current_repository(repository: ModelRepository | None) -> None:
    """Make magics use another repository; None for a fresh one when next needed. Closes nothing."""
    global _current
    with _lock:
        _current = repository
