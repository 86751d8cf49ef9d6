"""`Service`: puts the versions of models into service and takes them out.

Guarantees: loads of one model run one after the other, loads of different models in parallel. A failed load leaves the
versions in service unchanged. A replacement is atomic, and the replaced version is finalized after its requests have
finished. An ensemble leaves service before the models of its steps. After `close`, no model enters service.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.model import LoadedModel, wait_until_closed
from bls_notebook.engine.core.response_cache import ResponseCache
from bls_notebook.engine.core.server import Loader, Server
from bls_notebook.engine.errors import BLSError, ModelLoadError, RepositoryClosedError
from bls_notebook.engine.schedulers.caching_scheduler import CachingScheduler
from bls_notebook.engine.ticket import give_up
from bls_notebook.engine.waiting.operations import perform
from bls_notebook.engine.waiting.parker import Parker, requester
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.progress import progress

from .loading.ensembles import Dependencies, members_of_source
from .loading.loader import load_versions
from .model_index import Index, model_record
from .source.fingerprints import needs_reload, signature
from .source.model_source import ModelSource, SourceFolder
from .source.namespaces import Namespaces

if TYPE_CHECKING:
    from bls_notebook.records.models import ModelRecord

CLOSED = "the repository is closed"
_SAME_CONFIG = (
    "model '{}', version {}: a server ignores these files and keeps the code that it serves, because the configuration "
    "is the same. Unload the model first, or change a parameter of its configuration"
)
_CLOSED = "the repository was closed before the request was answered"


def finish_closing(models: list[LoadedModel], seconds: float) -> None:
    """Wait for models that leave service; after `seconds`, answer their requests in flight with an error."""
    try:
        wait_until_closed(models, monotonic() + seconds)
    finally:  # also on Ctrl-C
        left = [model for model in models if not model.closed.is_set()]
        if left:
            give_up(left, _CLOSED)


class NameLock:
    """A reentrant lock, also for the code of a model that its owner waits for; Ctrl-C interrupts a wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._depth = 0
        self._waiting: list[Parker] = []

    def __enter__(self) -> None:
        me = requester()
        while True:
            with self._lock:
                if self._owner in (0, me):
                    self._owner, self._depth = me, self._depth + 1
                    return
                parker = Parker()
                self._waiting.append(parker)
            parker.park()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth:
                return
            self._owner = 0
            woken, self._waiting = self._waiting, []
        for parker in woken:
            parker.unpark()


class Service:
    """The models in service, and the index of all known models."""

    def __init__(self, loader: Loader, cache: ResponseCache, strict: bool, namespaces: Namespaces) -> None:
        self.server = Server(loader, cache, strict)
        self.folder = SourceFolder()  # for the sources of cells and of file overrides
        self.index = Index(self.server, namespaces)
        if namespaces.enabled:
            self.server.identifiers = self.index.identifiers
        self.server.known_versions = self.index.tried
        self.dependencies = Dependencies()
        self.signatures: dict[str, object] = {}  # of model folders at their last load
        self.sources: dict[str, ModelSource] = {}  # of the last successful load
        # Substitutions end their waits when the service closes, and return the models to close with it.
        self.ending: list[Callable[[], list[LoadedModel]]] = []
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._locks: dict[str, NameLock] = {}
        self._definitions: Counter[str] = Counter()  # of each model, by cells
        self.remove_files = weakref.finalize(self, self.folder.close)  # or called by `close`

    @property
    def closed(self) -> bool:
        return self.closing.is_set()

    def lock_of(self, name: str) -> NameLock:
        """Return the lock of a model, held while its versions change."""
        with self._lock:
            return self._locks.setdefault(name, NameLock())

    def is_unchanged(self, source: ModelSource) -> bool:
        """Return whether a model in service has the same files, isolation and environment as this source."""
        same_files = self.signatures.get(source.name) == signature(source.folder)
        served = self.sources.get(source.name, source)
        same_home = (served.isolation, served.environment) == (source.isolation, source.environment)
        return same_files and same_home

    def load(self, source: ModelSource, keep: bool = False) -> ModelRecord:
        """Load a model and put it into service. The caller holds the model's lock."""
        name = source.name
        self.refuse_if_closed(name)
        started = perf_counter()
        before = self.server.own(name)
        specs = {version: model.spec for version, model in before.items()}
        has_new_files = source.origin == "files" and self.sources.get(name, source).folder != source.folder
        try:
            files = signature(source.folder)  # before the load, so that a file changed meanwhile is reloaded
            with progress(f"loading {name}"):
                loaded = load_versions(self.server, source, keep, lambda versions: self.index.loading(source, versions))
        except OSError as error:  # the folder was removed, or is not readable
            problem = ModelLoadError(f"model {name!r} could not be loaded: {error}", name)
            self.index.failed(source, problem)
            raise problem from error
        except BLSError as error:
            self.index.failed(source, error)
            raise
        seconds = perf_counter() - started
        self.dependencies.want(source, members_of_source(source))
        records = {}
        for version, model in loaded.items():
            model.on_closed = self.index.has_left
            stays, scheduler = before.get(version) is model, model.scheduler
            if isinstance(scheduler, CachingScheduler) and not stays and source.stub is None:
                scheduler.share((name, version, self._definitions[name]))
            unchanged = stays and specs[version] is model.spec
            records[version] = self.index.record(name, version) if unchanged else model_record(model, source, seconds)
            if has_new_files and version in specs and not needs_reload(specs[version].config, model.spec.config):
                advice = _SAME_CONFIG.format(source.model, version)
                records[version] = replace(records[version], warnings=(*records[version].warnings, advice))
        try:
            with self._lock:  # another thread may have closed the service
                self.refuse_if_closed(name)
                self.server.exchange(name, loaded)
        except BaseException:
            self.server.close_all(m for v, m in loaded.items() if before.get(v) is not m)
            raise
        self.index.leaving(name, [v for v in before if v not in loaded], "unloaded")
        self.index.loaded(name, records)
        self.sources[name], self.signatures[name] = source, files
        self.server.close_all(m for v, m in before.items() if loaded.get(v) is not m)
        return records[max(records)]

    def defined_anew(self, name: str) -> None:
        """Let the next load of a model start without cached responses: on a server, it would be another model."""
        self._definitions[name] += 1

    def refuse_if_closed(self, name: str) -> None:
        if self.closed:
            raise RepositoryClosedError(f"model {name!r}: {CLOSED}; make a new one: ModelRepository(...)")

    def unload(self, name: str, unload_dependents: bool = False) -> list[LoadedModel]:
        """Take a model, and the ensembles that need it, out of service; return the models that left."""
        with self.lock_of(name):  # an ensemble that is being loaded with this model comes first
            left = self.take_out_users(name) + self.take_out(name, "unloaded")
            self.index.unloaded(name)
            members = self.dependencies.forget(name)
        if unload_dependents:
            for orphan in self.dependencies.orphans(members):
                left += self.unload(orphan, True)
        return left

    def take_out_users(self, name: str) -> list[LoadedModel]:
        reason = f"unloaded: it needs '{name}'"
        return [m for user in self.dependencies.all_users(name) for m in self.take_out(user, reason)]

    def take_out(self, name: str, reason: str) -> list[LoadedModel]:
        with self.lock_of(name):
            self.index.leaving(name, self.server.own(name), reason)
            left = self.server.replace(name, {})
            self.signatures.pop(name, None)
        return left

    def close(self, seconds: float) -> None:
        """Unload every model and remove the files written for cells."""
        if not isinstance(seconds, (int, float)) or not seconds >= 0:
            raise BLSError(f"close: seconds: got {seconds!r}, expected a number, at least 0")
        self.not_by_a_model("close")
        perform(partial(self._close, seconds))

    def _close(self, seconds: float) -> None:
        with progress("closing the repository: requests in flight finish first"):
            try:
                finish_closing(self.begin_closing(), seconds)
            finally:
                self.remove_files()

    def begin_closing(self) -> list[LoadedModel]:
        """Take every model out of service and return them."""
        with self._lock:
            if self.closed:
                return []
            self.closing.set()
            self.server.why_closed = CLOSED
            for name in self.server.names():
                self.index.leaving(name, self.server.serving(name), CLOSED)
            left = [m for name in self.server.names() for m in self.server.exchange(name, {}).values()]
            left += [model for end in self.ending for model in end()]
        self.server.last_failure = None
        for model in left:
            model.close()
        return left

    def models_in_service(self) -> list[LoadedModel]:
        names = self.server.names()
        return [m for of in (self.server.own, self.server.serving) for name in names for m in of(name).values()]

    def leave_behind(self) -> None:
        """Give up the models without closing them: in a forked child they belong to the parent process."""
        self.closing = threading.Event()  # another thread may have held the lock of the old one
        self.closing.set()
        self.remove_files.detach()
        self.folder = SourceFolder()
        self._locks = {}
        self._lock = threading.Lock()

    def not_by_a_model(self, verb: str) -> None:
        """Raise if a model of this repository is the caller: the operation would wait for that model's own end."""
        caller = caller_var.get()
        if isinstance(caller, Execution) and caller.server is self.server and caller.runs_a_model:
            raise BLSError(
                f"{verb}: model {caller.model_name!r} cannot {verb} the repository that it runs in, because that "
                "waits until the model has finished; call it from the notebook, or unload single models "
                "(pb_utils.unload_model)"
            )
