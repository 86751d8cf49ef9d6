"""`Server`: the models that are in service, by name and version, and who requests go to.

Guarantees: `find` takes no lock and sees either the version before a replacement or the one after
it; replacing is one assignment, so no request falls between; models that leave service answer their
requests in flight first. A substitute takes the requests of a model as long as that is in service, also
where it is replaced meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

from bls_notebook.engine.error_messages import not_ready
from bls_notebook.engine.exception_text import describe
from bls_notebook.engine.metrics import Metrics
from bls_notebook.engine.schedulers.response_cache import ResponseCache
from bls_notebook.pb_utils import _runtime
from bls_notebook.pb_utils.errors import TritonModelException

from .model import LoadedModel

log = logging.getLogger("bls_notebook")


class Loader(Protocol):
    """The repository, as far as models may ask it (`pb_utils.load_model` and the like)."""

    def load_by_model(self, name: str, config: str, files: dict[str, bytes] | None) -> None:
        """Load or reload; raises an exception whose text is Triton's message."""

    def unload_by_model(self, name: str, unload_dependents: bool) -> None:
        """Unload."""

    def metric_family(self, name: str, description: str, kind: str) -> Any:
        """Return a family of custom metrics."""


class Substitute(Protocol):
    """Takes the requests of a model in its place."""

    def serve_for(self, own: dict[int, LoadedModel]) -> dict[int, LoadedModel]:
        """Return what serves in the place of these versions, each with one; asked again where they change."""

    def close_replaced(self) -> None:
        """Close the models that `serve_for` returned before and that are out of service now."""


class Server:
    """Models in service.

    `loader`: loads and unloads at the request of models. `cache`: of models whose configuration asks for one.
    `strict`: whether warnings fail the request.
    """

    def __init__(self, loader: Loader, cache: ResponseCache | None = None, strict: bool = False) -> None:
        self._loader = loader
        self.cache = ResponseCache() if cache is None else cache
        self.strict = strict
        self.backend_folders: tuple[Path, ...] = ()  # where Python-based backends are looked for
        self._versions: dict[str, dict[int, LoadedModel]] = {}
        self._newest: dict[str, LoadedModel] = {}
        # Of a substituted model: its own versions, and its substitutes; the last one serves.
        self._own: dict[str, dict[int, LoadedModel]] = {}
        self._substitutes: dict[str, list[Substitute]] = {}
        self.entering: list[Callable[[dict[int, LoadedModel]], None]] = []  # told before versions serve
        self._lock = threading.Lock()
        self.on_missing: list[Callable[[str], str]] = []  # each loads a model, or returns why it cannot
        self._unloadable: dict[str, str] = {}  # why, by name
        self.last_failure: BaseException | None = None
        servers.add(self)
        self.outside: dict[str, Any] = {}  # `CallKey` of the notebook, and of models whose threads send requests
        self._families: dict[tuple[str, str], WeakSet[_Family]] = {}  # by who made them

    def set_strict(self, strict: bool) -> None:
        """Say whether warnings fail requests, of models in service too."""
        with self._lock:
            self.strict = strict
            for versions in (*self._versions.values(), *self._own.values()):
                for model in versions.values():
                    model.outputs.strict = strict

    # -- requests ----------------------------------------------------------------------------------

    def find(self, name: str, version: int = -1) -> LoadedModel | None:
        """Return the model version that serves a request, None where none is ready."""
        if version == -1:
            return self._newest.get(name)
        return self._versions.get(name, {}).get(version)

    def missed(self, name: str, version: int = -1) -> LoadedModel | None:
        """Return what serves a request of a model after all, where what it asks for is loaded on demand."""
        if not self.on_missing:
            return None
        self._unloadable[name] = "; ".join(filter(None, [hook(name) for hook in list(self.on_missing)]))
        return self.find(name, version)

    def not_ready(self, name: str) -> str:
        """Return what a request is answered to a model that does not serve."""
        why = self._unloadable.get(name)
        return f"{not_ready(name)} Why: {why}" if why else not_ready(name)

    def note_failure(self, error: BaseException) -> None:
        """Keep the exception that a model raised, for post-mortem debugging."""
        self.last_failure = error

    # -- models ------------------------------------------------------------------------------------

    def serving(self, name: str) -> dict[int, LoadedModel]:
        """Return the versions of a model that are in service."""
        return dict(self._versions.get(name, {}))

    def own(self, name: str) -> dict[int, LoadedModel]:
        """Return the versions as they were loaded, beneath their substitutes."""
        return dict(self._own.get(name) or self._versions.get(name, {}))

    def names(self) -> list[str]:
        """Return the names of the models that are in service."""
        return sorted(self._versions)

    def replace(self, name: str, versions: dict[int, LoadedModel]) -> list[LoadedModel]:
        """Put versions of a model in service instead of those before; those that left are closed.

        Returns list of LoadedModel: what left service; `closed` says when it is finalized.
        """
        before = self.exchange(name, versions)
        return self.close_all(m for m in before.values() if m not in versions.values())

    def close_all(self, models: Iterable[LoadedModel]) -> list[LoadedModel]:
        """Close models that are out of service, and return them."""
        left = list(models)
        if left:
            self.last_failure = None  # its traceback holds every variable on the way, and so what models kept
        for model in left:
            model.close()
        return left

    def exchange(self, name: str, versions: dict[int, LoadedModel]) -> dict[int, LoadedModel]:
        """Put versions of a model in service instead of those before, and return those as they are."""
        return self._put(name, dict(versions), self._substitutes.get(name, []))

    def substitute(self, name: str, substitute: Substitute) -> None:
        """Give a model's requests to a substitute, until `restore`; the lock of the name is held."""
        self._put(name, self.own(name), [*self._substitutes.get(name, ()), substitute])

    def restore(self, name: str, substitute: Substitute) -> None:
        """Give a substitute no more requests; other substitutes of the model stay."""
        stay = [each for each in self._substitutes.get(name, ()) if each is not substitute]
        self._put(name, self.own(name), stay)
        substitute.close_replaced()

    def _put(self, name: str, own: dict[int, LoadedModel], substitutes: list[Substitute]) -> dict[int, LoadedModel]:
        versions = substitutes[-1].serve_for(own) if substitutes else own
        for tell in list(self.entering):
            tell(versions)
        with self._lock:
            before = self._own.pop(name, None) or self._versions.get(name, {})
            self._substitutes.pop(name, None)
            if substitutes:
                self._substitutes[name] = substitutes
                if own:
                    self._own[name] = own
            if versions:
                self._versions[name] = versions
                self._newest[name] = versions[max(versions)]
            else:
                self._versions.pop(name, None)
                self._newest.pop(name, None)
        for each in substitutes:
            each.close_replaced()
        return before

    # -- on behalf of models -------------------------------------------------------------------------

    def load_for_model(self, who: str, name: str, config: str, files: dict[str, bytes] | None) -> None:
        """Load a model for `pb_utils.load_model`; `who` is the instance that asks."""
        try:
            self._loader.load_by_model(name, config, files)
        except Exception as error:
            raise _failed(who, "Failed to load model", str(error)) from error

    def unload_for_model(self, who: str, name: str, unload_dependents: bool) -> None:
        """Unload a model for `pb_utils.unload_model`."""
        try:
            self._loader.unload_by_model(name, unload_dependents)
        except Exception as error:
            raise _failed(who, "Failed to unload model", str(error)) from error

    def is_ready_for_model(self, who: str, name: str, version: str) -> bool:
        """Answer `pb_utils.is_model_ready`."""
        number = -1
        if version:
            if not version.isascii() or not version.isdigit() or int(version) <= 0:
                raise _failed(
                    who,
                    "Failed to check model readiness",
                    f"failed to get model version from specified version string '{version}' (details: stol), "
                    "version should be an integral value > 0",
                )
            number = int(version)
        model = self.find(name, number) or self.missed(name, number)
        try:
            return model is not None and model.ready()
        except Exception as error:
            log.warning("is_ready of %s raised %s", name, describe(error).message)
            return False

    def metric_family(self, who: str, directory: str, name: str, description: str, kind: str) -> Any:
        """Make a metric family for a model, with errors in Triton's words."""
        family = _family(who, self._loader.metric_family, name, description, kind)
        maker = (who, directory)
        with self._lock:
            self._families.setdefault(maker, WeakSet()).add(family)
        return family

    def keep_metrics(self, instance: str, directory: str) -> None:
        """An instance goes away: the values of the metrics that it still has stay, as on the server."""
        with self._lock:
            for family in list(self._families.pop((instance, directory), ())):
                family.kept = True


def _failed(instance: str, what: str, why: str) -> TritonModelException:
    return TritonModelException(f"{what}: Failed to process the request for model '{instance}', message: {why}")


def _family(who: str, make: Callable[..., Any], *args: str) -> _Family:
    try:
        return _Family(who, make(*args))
    except ValueError as error:
        raise _failed(who, "Error when creating MetricFamily", str(error)) from error


class _Family:
    """A metric family whose errors speak as Triton's."""

    def __init__(self, instance: str, family: Any) -> None:
        self._instance, self._family = instance, family
        self._held: list[Any] = []
        self.kept = False

    def metric(self, labels: dict[str, str], buckets: list[float] | None) -> Any:
        """Return the metric with these labels."""
        try:
            metric = self._family.metric(labels, buckets, hold=True)
        except ValueError as error:
            raise _failed(self._instance, "Error when creating Metric", str(error)) from error
        self._held.append(metric)
        return _Metric(self._instance, metric)

    def drop(self) -> None:
        """Let go of the metrics that were made here. Takes no locks; called by a destructor."""
        if not self.kept:
            self._family.release(self._held)


class _Metric:
    """A metric whose errors speak as Triton's."""

    def __init__(self, instance: str, metric: Any) -> None:
        self._instance, self._metric = instance, metric

    def _do(self, verb: str, call: Any, *args: float) -> Any:
        try:
            return call(*args)
        except ValueError as error:
            raise _failed(self._instance, f"Failed to {verb} metric value", str(error)) from error

    def increment(self, value: float) -> None:
        """Add."""
        self._do("increment", self._metric.increment, value)

    def set(self, value: float) -> None:
        """Set."""
        self._do("set", self._metric.set, value)

    def observe(self, value: float) -> None:
        """Observe."""
        self._do("observe", self._metric.observe, value)

    def value(self) -> float:
        """Read."""
        return float(self._do("get", self._metric.value))


servers: WeakSet[Server] = WeakSet()  # that are in use
_runtime.loose_family = lambda *args: _family("called directly", Metrics().family, *args)
