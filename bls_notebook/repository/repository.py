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
from bls_notebook.engine.core.response_cache import DEFAULT_CACHE_BYTES
from bls_notebook.engine.model_code import run_body
from bls_notebook.records.models import ModelRecord, ModelRecords

from .catalog import Catalog, ControlMode
from .config import ModelConfigMessage
from .requests.response import Response
from .requests.sender import Sender, takes_arguments_of
from .shutdown import opened
from .source.model_folders import backend_folders, backend_path, repository_paths, shown_path
from .source.model_source import SourcePlace
from .statistics import statistics_of, statistics_record_of

if TYPE_CHECKING:
    from bls_notebook.records.errors import ErrorRecord
    from bls_notebook.records.statistics import StatisticsRecord

    from .substitution.stub import ModelStub


class ModelRepository:
    """A Triton model repository, hosted in this process.

    Parameters
    ----------
    *paths : str, Path, or list of these
        Folders in Triton's layout; none for models in memory only. Nothing is loaded at first.
    strict : bool
        If True, problems that Triton ignores (`Response.warnings`) fail the request.
    control_mode : str
        ``"explicit"``: models load and unload on request. ``"none"``: all models in `paths` are loaded now and
        stay. ``"poll"``: as ``"none"``, and then the repository follows changes in the folders. Models that
        fail to load are logged, and `index` gives the reason. Cells can be defined in any mode.
    poll_seconds : float or None
        Seconds between polls in mode ``"poll"``; None: only calls of `poll` check the folders.
    backend_directory : str or Path, optional
        Folder of Python-based backends: ``<backend_directory>/name/model.py`` runs models with ``backend: "name"`` if
        no installed backend has that name. Default: `backends`, beside or in the folders of `paths`.
    cache_bytes : int
        Size of the response cache (``response_cache { enable: true }``), which all models share; 0 for none.
    fill : mapping of str to object, optional
        Values for templates such as ``${engine_dir}``, and for parameters, by key. Other templates are filled
        from the environment or with harmless defaults. None: no template is filled, as on Triton.

    Raises
    ------
    BLSError
        A path or `backend_directory` is not a folder.

    Attributes
    ----------
    metrics : Metrics
        Metrics of the models, and Triton's own; `metrics.text()` returns the text that Prometheus reads.

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
        if control_mode != "explicit":
            self._catalog.start(poll_seconds)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The folders in which models are searched."""
        return self._catalog.paths

    def ready(self, name: str, version: int | None = None) -> bool:
        """Whether the given version of a model serves; None: any version."""
        return self._catalog.ready(name, version)

    def index(self, folders: bool = True) -> ModelRecords:
        """Return a record of every known version of every model, sorted by name and version.

        Parameters
        ----------
        folders : bool
            Whether to list models in the folders that were never loaded.
        """
        return ModelRecords(self._catalog.service.index.rows(self._catalog.paths if folders else ()))

    def config(self, name: str) -> ModelConfigMessage:
        """Return a copy of a model's completed configuration; ModelNotFoundError if no version serves."""
        return deepcopy(self._catalog.ready_model(name).spec.config)

    def record(self, name: str) -> ModelRecord:
        """Return the record of a model's newest version in service; ModelNotFoundError if none serves."""
        return self._catalog.service.index.record(name, self._catalog.ready_model(name).version)

    def statistics(self, name: str) -> dict[str, Any]:
        """Return the statistics of a model, by version, in the shape of Triton's statistics.

        Times (``ns``) are in nanoseconds. The ``compute_infer`` of an ensemble is the sum of its steps' times. The
        statistics of a remote model are its server's, which count the requests of all clients. Raises a
        ModelNotFoundError if no version serves.
        """
        self._catalog.ready_model(name)
        return {"model_stats": [statistics_of(model) for model in self._versions(name)]}

    def statistics_records(self, *names: str) -> list[StatisticsRecord]:
        """Return a statistics record of each version of these models, by default of all models in service.

        Raises a ModelNotFoundError if no version of a named model serves.
        """
        for name in names:
            self._catalog.ready_model(name)
        models = [m for name in dict.fromkeys(names or self._server.names()) for m in self._versions(name)]
        return [statistics_record_of(model) for model in models]

    def _versions(self, name: str) -> list[LoadedModel]:
        return [model for _, model in sorted(self._server.serving(name).items())]

    @property
    def last_failure(self) -> BaseException | None:
        """The last exception that a model raised, with its traceback, for post-mortem debugging."""
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
        """Define a model by its source and load it; ``%%tritonmodel`` calls this.

        Parameters
        ----------
        name : str
            Name of the model. A model of the same name is replaced once the new one has loaded.
        source : str
            Text of model.py.
        config : str, dict or ModelConfig, optional
            Configuration, as in config.pbtxt. Default: the one given to `set_config`, or else the result of the
            model's `auto_complete_config`.
        version : int
            Number of the version.
        notebook_names : collection of str, optional
            Names of the notebook's variables; the record warns about those that the source reads.
        place : SourcePlace, optional
            File and line of the source, which debuggers, tracebacks and messages name.

        Returns
        -------
        ModelRecord

        Raises
        ------
        InvalidNameError, ConfigError, ModelLoadError
            The version that was in service still serves.
        """
        return self._catalog.define(name, source, config, version, notebook_names, place)

    def set_config(self, name: str, config: str | Mapping[str, Any]) -> ModelRecord | None:
        """Set the configuration (config.pbtxt) of a model; ``%%tritonconfig`` calls this.

        The text is checked now, and the next `define` uses it. A cell's model in service is reloaded with it at once,
        and its record is returned. An ensemble needs no source, so it is loaded at once, too.

        Raises
        ------
        ConfigError, ModelLoadError
            The previous configuration stays.
        """
        return self._catalog.set_config(name, config)

    def load(
        self, name: str, config: str | Mapping[str, Any] | None = None, files: Mapping[str, bytes] | None = None
    ) -> ModelRecord:
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

        Returns
        -------
        ModelRecord
            Record of the newest version.

        Raises
        ------
        ModelNotFoundError, InvalidNameError, ConfigError, ModelLoadError
            The versions that were in service still serve.
        """
        return self._catalog.load(name, config, files)

    def reload(self, name: str) -> ModelRecord:
        """Load a model again from its files or its cell, even if they have not changed."""
        return self._catalog.reload(name)

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
        self._catalog.unload(name, unload_dependents)

    def clear(self, keep_folders: bool = False) -> None:
        """Unload every model and forget the models of cells; a BLSError if a model of this repository calls it.

        Parameters
        ----------
        keep_folders : bool
            Whether models loaded from folders, without other files or configuration, stay in service.
        """
        self._catalog.clear(keep_folders)

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
        return self._catalog.poll()

    @takes_arguments_of(Sender.request)
    def infer(self, *arguments: Any, **options: Any) -> Response:
        """Send a request and wait for its response.

        Parameters
        ----------
        name : str
            Name of the model.
        inputs : mapping of str to array
            Arrays are sent unchanged; lists, numbers and text are converted to the input's data type.
        outputs : sequence of str, optional
            Names of the requested outputs; default: all.
        version : int
            Version of the model; -1 for the newest that is ready.
        preferred_memory : str or PreferredMemory, optional
            Device of the outputs: ``"cpu"``, ``"gpu:0"``.
        timeout : int
            Timeout (µs), as in `pb_utils.InferenceRequest`.
        request_id, correlation_id, flags, parameters
            As in `pb_utils.InferenceRequest`. The parameter ``priority`` (a whole number) is the request's level in
            a dynamic batcher's queue; the model does not receive it, as with HTTP requests.
        trace : bool, str or mapping, optional
            True starts a trace. A W3C ``traceparent``, or a mapping that contains one (OpenTelemetry's
            ``propagate.inject`` fills in such a mapping), joins a trace. The model reads it with ``request.trace()``.

        Returns
        -------
        Response
            Its `error` is set if the request failed; a failed request raises nothing.

        Raises
        ------
        BLSError
            A value cannot become a tensor, or `trace` is no traceparent.
        """
        return self._sender.send(self._sender.request(*arguments, **options))

    @takes_arguments_of(Sender.request)
    async def infer_async(self, *arguments: Any, **options: Any) -> Response:
        """Send a request and await its response; arguments as for `infer`."""
        return await self._sender.send_async(self._sender.request(*arguments, **options))

    @takes_arguments_of(Sender.request)
    def stream(self, *arguments: Any, **options: Any) -> Iterator[Response]:
        """Send a request to a decoupled model and iterate its responses as they arrive; arguments as for `infer`.

        If the final flag arrives without a response, the last response becomes `final`. Ending the iteration early
        cancels the request.
        """
        return self._sender.stream(self._sender.request(*arguments, **options))

    @takes_arguments_of(Sender.request)
    def stream_async(self, *arguments: Any, **options: Any) -> AsyncIterator[Response]:
        """Send a request to a decoupled model and iterate its responses asynchronously; see `stream`."""
        return self._sender.stream_async(self._sender.request(*arguments, **options))

    def run(self, function: Callable[[], Any], errors: list[ErrorRecord] | None = None) -> Any:
        """Run a function as the body of an `execute`, which may send BLS requests; return its result.

        Parameters
        ----------
        function : callable
            Takes no arguments. A coroutine function is awaited in a new event loop.
        errors : list, optional
            The last error responses to the function's requests are appended to this list.
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
        """Answer a model's requests with a stub inside a ``with`` block; see `docs/guides/testing.md`.

        Parameters
        ----------
        model : str
            A model in service, a model in the folders (which is not loaded), or any name together with `config`.
        answer : object
            A mapping of output names to arrays; an error (`TritonError`, an exception or text); a function that takes
            the request and returns a mapping, an error or an `InferenceResponse` (for a decoupled model also an
            iterable of these); a list with one of these for each request in turn; a recording; or None for outputs
            made up from the configuration.
        delay : float
            Delay (s) before each response; it ends early if the request is cancelled.
        config : str or dict, optional
            Configuration of a model that is in no folder.
        clock : object, optional
            Object whose `wait` method performs the delay, in place of the system clock.

        Returns
        -------
        ModelStub
            A context manager; its `calls` are the requests that it received.
        """
        from .substitution.stub import ModelStub

        return ModelStub(self._catalog, model, answer, delay, config, clock)

    @property
    def strict(self) -> bool:
        """Whether warnings fail the request; can be set at any time."""
        return self._server.strict

    @strict.setter
    def strict(self, value: bool) -> None:
        self._server.set_strict(bool(value))

    @property
    def closed(self) -> bool:
        """Whether the repository has been closed."""
        return self._catalog.service.closed

    def close(self, seconds: float = 5.0) -> None:
        """Unload every model and remove the files written for cells. May be called twice.

        Parameters
        ----------
        seconds : float
            Time limit (s) for requests in flight and for `finalize`. Afterwards, requests in flight are answered with
            an error; a request that runs on its caller's thread ends when its `execute` returns.
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
    """Return the repository that magics use; the first call creates one in memory."""
    global _current
    with _lock:
        if _current is None:
            _current = ModelRepository()
        return _current


def set_current_repository(repository: ModelRepository | None) -> None:
    """Make magics use another repository; None: a new one on next use. The old one is not closed."""
    global _current
    with _lock:
        _current = repository
