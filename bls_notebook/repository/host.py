"""`Host`: the runtime as capabilities see it; import it from `bls_notebook.extending`.

Guarantees: every method may be called from any thread. No lock of the engine is held while the caller's code runs. The
hooks of `before_load` and `on_missing` run on the thread that loads, before it takes the model's lock. Each registering
method returns an undo function, which may be called twice. Ctrl-C leaves the state unchanged.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from contextvars import Context
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from bls_notebook.engine.calling import Root, root_of
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.error_responses import cancelled_response
from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.waiting.interrupts import Interrupted
from bls_notebook.engine.waiting.operations import perform
from bls_notebook.engine.waiting.parker import Parker
from bls_notebook.engine.waiting.worker_threads import start_in_thread
from bls_notebook.pb_utils import InferenceRequest
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.progress import stepped
from bls_notebook.records.advice import Known
from bls_notebook.records.models import ModelRecord

from .loading.ensembles import members_of
from .source.model_folders import backend_folders, folder_path, shown_path
from .source.model_source import ModelSource, RemoteModel

if TYPE_CHECKING:
    from .catalog import Config
    from .repository import ModelRepository
    from .substitution.call import Answers
    from .substitution.substitution import Check, Substitution
    from .variant import Variant, VariantChange

Undo = Callable[[], None]
_Hook = TypeVar("_Hook")

log = logging.getLogger("bls_notebook")


class Host:
    """The models of a `ModelRepository`, for code that is not part of the core.

    `request` builds a request from the arguments of `ModelRepository.infer`, without sending it. It raises a BLSError
    if a value cannot become a tensor.
    """

    def __init__(self, repository: ModelRepository) -> None:
        self.repository = repository
        self._server: Server = repository._server
        self.request = repository._sender.request

    @property
    def known(self) -> Known:
        """The models and names that advice on errors refers to; see `records.advice`."""
        return self.repository._known

    def names(self) -> list[str]:
        """Return the names of the loaded models, sorted, without ambiguous names; a snapshot."""
        return [name for name in self._server.names() if self._server.find(name) is not None]

    def model_keys(self) -> list[str]:
        """Return the keys of the loaded models, sorted: names, also with their namespaces."""
        return self._server.names()

    def find(self, name: str, version: int = -1) -> LoadedModel | None:
        """Return a version in service of a model, by default the newest; None if there is none.

        Never loads a model. Treat the result as read-only.
        """
        return self._server.find(name, version)

    def identifiers(self, name: str) -> list[str] | None:
        """Return the identifiers of the known models with a name; None for an unknown name if there are namespaces."""
        return self._server.identifiers(name) if self._server.identifiers else [name]

    def why_unknown(self, name: str, version: int = -1) -> str:
        """Return the error for a name or a version that does not serve, in Triton's words."""
        return self._server.why_unknown(name, version)

    def versions(self, name: str, own: bool = False) -> dict[int, LoadedModel]:
        """Return the versions of a model in service, by number; `own`: the real ones beneath substitutions."""
        return self._server.own(name) if own else self._server.serving(name)

    def reached(self, names: Iterable[str]) -> set[str]:
        """Return these models and those that they have called, directly or not, without remote models."""
        models = set[str]()
        pending = [*names]
        while pending:
            name = pending.pop()
            model = self.find(name)
            if name not in models and model is not None and not model.seen.remote:
                models.add(name)
                pending += [*model.calls, *members_of(model.spec.config)]
        return models

    def ready(self, name: str) -> LoadedModel:
        """Return the newest version in service, or raise a ModelNotFoundError that suggests names."""
        return self.repository._ready_model(name)

    def source(self, name: str, loaded: bool = False) -> ModelSource:
        """Return the source of a model: a folder, a cell or a remote server. Reads the disk and runs no code.

        With `loaded`, return the source that the versions in service were loaded from. Raises a ModelNotFoundError
        if the model does not exist or, with `loaded`, was never loaded.
        """
        if not loaded:
            return self.repository._source(name)
        sources = self.repository._service.sources
        if name not in sources:
            self.repository._ready_model(name)  # which raises
        return sources[name]

    def serve(self, source: ModelSource) -> ModelRecord:
        """Load a source in place of the model's own, until the model is reloaded."""
        return self.repository._load(lambda: source)

    def unload(self, name: str, unload_dependents: bool = False) -> None:
        """Take a model out of service as a server does on request: its requests finish later."""
        perform(partial(self.repository._leave, name, unload_dependents))

    def failed(self, name: str, why: str) -> None:
        """Record in the index why a model is not loaded."""
        folder = next((path / name for path in self.repository.paths if (path / name).is_dir()), Path(name))
        self.repository._service.index.failed(ModelSource(name, folder, shown_path(folder)), why)

    def send(self, request: InferenceRequest, stream: bool = False) -> SentRequest:
        """Send a request from outside any model, on a new thread; return a future.

        The result is the `Response`; with `stream`, the list of all responses. An error is a response. Cancelling
        the future cancels the request, whose response is then an error.
        """
        # The root belongs to this thread: a root can be interrupted only if another thread runs it.
        future = SentRequest(root_of(self._server))
        sender, model = self.repository._sender, request._model_name

        def work() -> None:
            caller_var.set(future.root)
            began = perf_counter()
            try:
                result: Any = list(sender.stream(request)) if stream else sender.send(request)
            except Interrupted:
                response = sender.response(request, cancelled_response(model), began)
                future.set_result([response] if stream else response)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        start_in_thread(lambda: Context().run(work))
        return future

    def uncounted(self) -> AbstractContextManager[None]:
        """Return a context manager after which the models have the counts and last errors of before: for a tool."""
        from .statistics import uncounted

        return uncounted(self._server)

    def substitute(
        self,
        answers: Mapping[str, Answers | None],
        *,
        configs: Mapping[str, Config] | None = None,
        concurrent: bool = False,
        check: Check | None = None,
    ) -> Substitution:
        """Return a context manager in which other code answers for models; it substitutes all names or none.

        See `repository.substitution.substitution.Substitution` for the options.
        """
        from .substitution.substitution import Substitution

        return Substitution(self.repository, answers, configs=configs, concurrent=concurrent, check=check)

    def variant(self, changes: Mapping[str, VariantChange]) -> Variant:
        """Return a context manager that loads changed models beside the serving versions."""
        from .variant import Variant

        return Variant(self.repository, changes)

    def register(self, models: Mapping[str, RemoteModel]) -> Registration:
        """Serve models of remote servers under these names: all of them, or none and a ModelLoadError."""
        registration = Registration(self.repository, models)
        registration._serve()
        return registration

    def on_missing(self, hook: Callable[[str], str]) -> Undo:
        """Call `hook` with the name of the requested model when a request's model is not in service.

        The hook runs on the thread of the request and may load the model. It returns the reason if it cannot, else "".
        """
        return _added(self._server.on_missing, hook)

    def before_load(self, hook: Callable[[ModelSource], ModelSource]) -> Undo:
        """Let `hook` change the source of each model of a folder before the model is loaded.

        The hook should be a pure function. An exception fails the load of that model only.
        """
        return _added(self.repository._before_load, hook)

    def before_serving(self, hook: Callable[[Mapping[int, LoadedModel]], None]) -> Undo:
        """Call `hook` with a model's versions just before they enter service, on the thread that loads them."""
        return _added(self._server.entering, hook)

    def add_folder(self, path: str | Path | None = None) -> Path:
        """Add a folder of models to the repository and return it.

        Without `path`, return a new private folder, which is removed when the repository is closed and is not
        searched for models.
        """
        if path is None:
            return self.repository._service.folder.new()
        folder = folder_path(path, "add_folder", "give a folder whose sub-folders are models")
        if folder not in self.repository.paths:
            self.repository._namespaces.paths = (*self.repository.paths, folder)
            self._server.backend_folders = backend_folders(self.repository.paths, self.repository.backend_directory)
        return folder


class SentRequest(Future[Any]):
    """The future response to a request of `Host.send`; `root` is the execution that sent the request."""

    def __init__(self, root: Root) -> None:
        super().__init__()
        self.root = root

    def wait(self, seconds: float = -1) -> bool:
        """Wait for the response, at most so long (-1: no limit); return whether it has come. Ctrl-C ends the wait."""
        parker = Parker()
        self.add_done_callback(lambda _: parker.unpark())
        return parker.park(seconds)

    def result(self, timeout: float | None = None) -> Any:
        self.wait(-1 if timeout is None else max(0.0, timeout))
        return super().result(0)

    def cancel(self) -> bool:
        """Cancel the request; False if it has been answered."""
        if self.done():
            return False
        self.root.interrupt()
        return True


class Registration:
    """Remote models that serve here; returned by `Host.register`.

    It does not keep the repository alive. Once the repository is closed, the methods do nothing.
    """

    def __init__(self, repository: ModelRepository, models: Mapping[str, RemoteModel]) -> None:
        self.models = dict(models)
        self._repository = weakref.ref(repository)
        self._why = ""

    def _serve(self) -> None:
        repository = self._open_repository()
        assert repository is not None
        try:
            models = list(self.models.items())
            for name, remote in stepped(models, "models", len(models)) if len(models) > 1 else models:
                folder = repository._service.folder.write(name, {"1/.remote": remote.address.encode()})
                repository._serve(ModelSource(name, folder, remote.address, remote=remote))
        except BaseException:
            for name in self.names():  # also one that Ctrl-C reported as interrupted when it already served
                repository.unload(name)
            for name in self.models:
                if not repository.ready(name):
                    repository._forget(name)
            raise

    def _open_repository(self) -> ModelRepository | None:
        repository = self._repository()
        return None if repository is None or repository.closed else repository

    def names(self) -> list[str]:
        """Return the names that still belong to these models; others may since have been loaded under some names."""
        repository = self._open_repository()
        sources = {} if repository is None else repository._service.sources
        return [n for n, remote in self.models.items() if n in sources and sources[n].remote is remote]

    def lost(self, why: str) -> None:
        """Record in the index why the server cannot be reached; "" once it answers again."""
        self._why = why
        repository = self._open_repository()
        if repository is not None:
            for name in self.models:
                repository._service.index.remote_is(name, why)

    def refresh(self) -> None:
        """Reload the models from the server. A failure is logged, and that model stays unchanged."""
        for name in self.names():
            repository = self._open_repository()
            if repository is None or self._why:
                return
            try:
                if repository.ready(name):
                    repository.reload(name)
            except BLSError as error:
                log.warning("%s", error)

    def remove(self) -> None:
        """Take the models out of service once their requests have finished. May be called twice."""
        for name in self.names():
            repository = self._open_repository()
            if repository is not None:
                repository.unload(name)
                repository._forget(name)


def _added(hooks: list[_Hook], hook: _Hook) -> Undo:
    hooks.append(hook)

    def undo() -> None:
        if hook in hooks:
            hooks.remove(hook)

    return undo


def load_again(repository: ModelRepository, name: str) -> None:
    """Reload a model exactly as it serves, including overrides, for instance to reset its state.

    Requests in flight finish in the instances that run them. If the load fails, the old instances stay in service.
    """
    service = repository._service
    with suppress(BLSError), service.lock_of(name):
        service.load(service.sources[name])
