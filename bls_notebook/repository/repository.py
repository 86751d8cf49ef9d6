"""`ModelRepository`: models on disk and in cells, loaded into this process; the public API.

Magics and bare calls use the current repository.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bls_notebook.engine.model_code import run_body
from bls_notebook.engine.waiting.operations import perform

from .catalog import Catalog, Config
from .config import ModelConfigMessage, environment_parameter
from .modules.module_home import SourcePlace
from .requests.response import Response
from .requests.sender import Sender
from .source.model_folders import shown_path
from .source.names import check_isolation
from .source.namespaces import model_of
from .statistics import statistics_of, statistics_record_of

if TYPE_CHECKING:
    from bls_notebook.engine.core.model import LoadedModel
    from bls_notebook.records.environments import EnvironmentRecord
    from bls_notebook.records.errors import ErrorRecord
    from bls_notebook.records.models import ModelRecord
    from bls_notebook.records.statistics import StatisticsRecord

    from .substitution.stub import ModelStub


class ModelRepository(Catalog):
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
    model_config_name : str
        As Triton's ``--model-config-name``: a model with a file ``configs/<name>.pbtxt`` uses it as its config.pbtxt.
    metrics_config : mapping of str to str, optional
        As Triton's ``--metrics-config``: ``{"summary_latencies": "true"}`` adds summaries of durations,
        ``"summary_quantiles": "0.5:0.05,0.9:0.01"`` changes their quantiles, ``"histogram_latencies": "true"`` adds a
        histogram of first responses, with the buckets of a model's `model_metrics`, and ``"counter_latencies":
        "false"`` removes the counters of durations; the others stay 0, as on Triton.
    rate_limit : str
        As Triton's ``--rate-limit``: with ``"execution_count"``, the `rate_limiter` of instance groups has an effect.
    rate_limit_resources : iterable of str
        As Triton's ``--rate-limit-resource``: counts of resources, ``"R1:4"``, or on one device, ``"R1:4:0"``.
    model_namespacing : bool
        As Triton's ``--model-namespacing``: each folder of `paths` is a namespace, so several may have a model of the
        same name. The steps of an ensemble are models of its own folder, or else the only ones of their names. Loads
        and unloads of a name concern all of its models; a request for it is an error.

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

    @cached_property
    def _sender(self) -> Sender:
        return Sender(self._server, self._known)

    @property
    def last_failure(self) -> BaseException | None:
        """The last exception that a model raised, with its traceback, for post-mortem debugging."""
        return self._server.last_failure

    def statistics(self, name: str) -> dict[str, Any]:
        """Return the statistics of a model, by version, in the shape of Triton's statistics.

        Times (``ns``) are in nanoseconds. The ``compute_infer`` of an ensemble is the sum of its steps' times. The
        statistics of a remote model are its server's, which count the requests of all clients. Raises a
        ModelNotFoundError if no version serves.
        """
        self._ready_model(name)
        return {"model_stats": [statistics_of(model) for model in self._versions(name)]}

    def statistics_records(self, *names: str) -> list[StatisticsRecord]:
        """Return a statistics record of each version of these models, by default of all models in service.

        Raises a ModelNotFoundError if no version of a named model serves.
        """
        for name in names:
            self._ready_model(name)
        models = [m for name in dict.fromkeys(names or self._server.names()) for m in self._versions(name)]
        return [statistics_record_of(model) for model in models]

    def _versions(self, name: str) -> list[LoadedModel]:
        return [model for _, model in sorted(self._server.serving(name).items())]

    def infer(
        self,
        name: str,
        inputs: Mapping[str, Any],
        outputs: Sequence[str] | None = None,
        version: int = -1,
        preferred_memory: object = None,
        timeout: int = 0,
        request_id: str = "",
        correlation_id: int | str = 0,
        flags: int = 0,
        parameters: Mapping[str, Any] | None = None,
        trace: object = None,
    ) -> Response:
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
        options = outputs, version, preferred_memory, timeout, request_id, correlation_id, flags, parameters, trace
        return self._sender.send(self._sender.request(name, inputs, *options))

    async def infer_async(
        self,
        name: str,
        inputs: Mapping[str, Any],
        outputs: Sequence[str] | None = None,
        version: int = -1,
        preferred_memory: object = None,
        timeout: int = 0,
        request_id: str = "",
        correlation_id: int | str = 0,
        flags: int = 0,
        parameters: Mapping[str, Any] | None = None,
        trace: object = None,
    ) -> Response:
        """Send a request and await its response; arguments as for `infer`."""
        options = outputs, version, preferred_memory, timeout, request_id, correlation_id, flags, parameters, trace
        return await self._sender.send_async(self._sender.request(name, inputs, *options))

    def stream(
        self,
        name: str,
        inputs: Mapping[str, Any],
        outputs: Sequence[str] | None = None,
        version: int = -1,
        preferred_memory: object = None,
        timeout: int = 0,
        request_id: str = "",
        correlation_id: int | str = 0,
        flags: int = 0,
        parameters: Mapping[str, Any] | None = None,
        trace: object = None,
    ) -> Iterator[Response]:
        """Send a request to a decoupled model and iterate its responses as they arrive; arguments as for `infer`.

        If the final flag arrives without a response, the last response becomes `final`. Ending the iteration early
        cancels the request.
        """
        options = outputs, version, preferred_memory, timeout, request_id, correlation_id, flags, parameters, trace
        return self._sender.stream(self._sender.request(name, inputs, *options))

    def stream_async(
        self,
        name: str,
        inputs: Mapping[str, Any],
        outputs: Sequence[str] | None = None,
        version: int = -1,
        preferred_memory: object = None,
        timeout: int = 0,
        request_id: str = "",
        correlation_id: int | str = 0,
        flags: int = 0,
        parameters: Mapping[str, Any] | None = None,
        trace: object = None,
    ) -> AsyncIterator[Response]:
        """Send a request to a decoupled model and iterate its responses asynchronously; see `stream`."""
        options = outputs, version, preferred_memory, timeout, request_id, correlation_id, flags, parameters, trace
        return self._sender.stream_async(self._sender.request(name, inputs, *options))

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

        return ModelStub(self, model, answer, delay, config, clock)

    @property
    def strict(self) -> bool:
        """Return whether warnings fail the request; can be set at any time."""
        return self._server.strict

    @strict.setter
    def strict(self, value: bool) -> None:
        self._server.set_strict(bool(value))

    @property
    def isolation(self) -> str:
        """Return where instances run that are loaded from now on: in the ``"kernel"``, or each in a ``"process"``."""
        return self._server.isolation

    @isolation.setter
    def isolation(self, value: str) -> None:
        self._server.isolation = check_isolation(value) or "kernel"

    def environment(
        self, *requirements: str | Sequence[str], python: str | None = None, upgrade: bool = False
    ) -> EnvironmentRecord:
        """Return a Python environment with these packages, for models in processes; install it if necessary.

        It is a virtual environment in the user's cache folder, made by ``uv`` if that is installed, or else by ``venv``
        and pip, with the indexes of their configurations. Requests with the same packages share one.

        Parameters
        ----------
        *requirements : str or sequence of str
            pip requirements, also several in one text (``"numpy<2, scikit-learn==1.4"``), or the path of a
            requirements.txt. NumPy is always installed, because `pb_utils` needs it.
        python : str, optional
            Version such as ``"3.10"`` (on PATH, or of pyenv; uv downloads it otherwise), or the path of an interpreter.
            Default: this one.
        upgrade : bool
            Whether to resolve the requirements again, as `pip install --upgrade` does, even if they are installed.

        Returns
        -------
        EnvironmentRecord
            To pass to `define` or `load`; its `path` can be the value of ``EXECUTION_ENV_PATH`` in a configuration.

        Raises
        ------
        BLSError
            There is no such Python, or the installation failed; the message has the last lines of its log. Nothing is
            left of it, also after Ctrl-C.
        """
        from .environments import make_environment  # first needed here

        words = [word for item in requirements for word in ([item] if isinstance(item, str) else item)]
        return self._with_users([perform(partial(make_environment, words, python, upgrade))])[0]

    def environments(self) -> list[EnvironmentRecord]:
        """Return the environments that `environment` has made, with the models and processes that use them now."""
        from .environments import environment_records  # first needed here

        return self._with_users(environment_records())

    def delete_environments(self, *names: str, unused: bool = False) -> list[EnvironmentRecord]:
        """Delete environments by name, and with `unused` all that no process uses now; return their records.

        Configurations on disk may name an environment by its path; nothing looks for them.

        Raises
        ------
        BLSError
            A named environment does not exist or is in use.
        """
        from .environments import delete_environments  # first needed here

        return perform(partial(delete_environments, names, unused))

    def _with_users(self, records: Sequence[EnvironmentRecord]) -> list[EnvironmentRecord]:
        """Return the records with the names of this repository's models in place of this process."""
        named: dict[str, list[str]] = {}
        for name in self._server.names():
            for path in {environment_parameter(model.spec.config) for model in self._versions(name)}:
                named.setdefault(path, []).append(model_of(name))
        return [
            replace(record, users=(*named[record.path], *(user for user in record.users if user != "this process")))
            if record.path in named else record
            for record in records
        ]  # fmt: skip

    @property
    def closed(self) -> bool:
        """Return whether the repository has been closed."""
        return self._service.closed

    def close(self, seconds: float = 5.0) -> None:
        """Unload every model and remove the files written for cells. May be called twice.

        Parameters
        ----------
        seconds : float
            Time limit (s) for requests in flight and for `finalize`. Afterwards, requests in flight are answered with
            an error; a request that runs on its caller's thread ends when its `execute` returns.
        """
        self._service.close(seconds)

    def __enter__(self) -> ModelRepository:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = ", ".join(map(shown_path, self.paths)) or "memory"
        return f"<ModelRepository {where}: {len(self._server.names())} loaded>"


def define_cell(
    repository: ModelRepository,
    name: str,
    source: str,
    config: Config | ModelConfigMessage | None,
    version: int,
    notebook_names: Collection[str],
    place: SourcePlace | None,
    options: Mapping[str, Any] | None = None,
    home: Mapping[str, Any] = MappingProxyType({}),
) -> ModelRecord:
    """Define a model by a cell, as `ModelRepository.define`.

    The record warns about the notebook's variables that the source reads. `place` is the cell, which debuggers,
    tracebacks and messages name. Without `config`, `options` are fields in place of those of the model on disk.
    """
    return repository._define(name, source, config, version, home, notebook_names, place, options)


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
