"""`Server`: the models in service, by name and version.

Guarantees: `find` takes no lock and returns either the version before a replacement or the one after it. Replacing is
one assignment, so at every moment a request finds a version. A replaced model answers its requests in flight before
it closes. A substitute keeps getting the requests of a model when the model is replaced.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

from bls_notebook.engine.core.response_cache import ResponseCache
from bls_notebook.engine.errors import (
    POLL_FAILED,
    BLSError,
    InvalidNameError,
    ModelNotFoundError,
    c_text,
    running,
    unidentified,
    unknown_model,
)
from bls_notebook.engine.exception_text import describe
from bls_notebook.engine.metrics import Metrics
from bls_notebook.pb_utils import _runtime
from bls_notebook.pb_utils.errors import failed_for

from .metrics_config import MetricsConfig
from .model import LoadedModel, wait_until_closed
from .rate_limiter import RateLimiter

log = logging.getLogger("bls_notebook")
_MIXED_UP = (
    "load_model of '{}' got {} files: a server gives each of them the content of another one, or of freed memory. Pass "
    "one file, which includes the others, or send them with a client's load request"
)


class Loader(Protocol):
    """The repository, for models that load others and make metrics (`pb_utils.load_model` and the like)."""

    metrics: Metrics

    def load(self, name: str, config: str | None, files: dict[str, bytes] | None) -> Any:
        """Load or reload a model; return its record."""

    def unload(self, name: str, unload_dependents: bool) -> None:
        """Unload a model."""


class Substitute(Protocol):
    """Provides the models that get the requests of another model."""

    def serve_for(self, own: dict[int, LoadedModel]) -> dict[int, LoadedModel]:
        """Return a substitute for each of these versions; called again when they change."""

    def close_replaced(self) -> None:
        """Close models that an earlier `serve_for` returned and that are out of service now."""


class Server:
    """The models in service; with `strict`, a warning fails its request."""

    def __init__(self, loader: Loader, cache: ResponseCache | None = None, strict: bool = False) -> None:
        self._loader = loader
        self.cache = ResponseCache() if cache is None else cache
        self.strict = strict
        self.isolation = "kernel"  # where instances of Python models run: "kernel" or "process"
        self.metrics_config = MetricsConfig()
        self.rate_limiter: RateLimiter | None = None
        self.backend_folders: tuple[Path, ...] = ()  # search path of Python-based backends
        self._versions: dict[str, dict[int, LoadedModel]] = {}
        self._newest: dict[str, LoadedModel] = {}
        # For a substituted model: its own versions, and its substitutes, of which the last one serves.
        self._own: dict[str, dict[int, LoadedModel]] = {}
        self._substitutes: dict[str, list[Substitute]] = {}
        self.entering: list[Callable[[dict[int, LoadedModel]], None]] = []  # called before versions serve
        self._lock = threading.Lock()
        self.on_missing: list[Callable[[str], str]] = []  # each loads a model, or returns the reason that prevents it
        self._unloadable: dict[str, str] = {}  # these reasons, by model
        self.known_versions: Callable[[str], Collection[int]] = self.serving  # that were ever loaded, or tried
        # With model namespaces, the identifiers of the known models with a name; None if none was ever known.
        self.identifiers: Callable[[str], list[str] | None] | None = None
        self.why_closed = ""
        self.last_failure: BaseException | None = None
        servers.add(self)
        self.outside: dict[str, Any] = {}  # `CallKey` of the notebook, and of models whose bare threads send requests
        self._families: dict[tuple[str, str], WeakSet[_Family]] = {}  # by the instance and folder that made them

    @property
    def options(self) -> set[str]:
        """Triton's options that make fields of configurations effective, see fields.json."""
        histograms = self.metrics_config.histograms
        on = {"rate_limit": self.rate_limiter, "histogram_latencies": histograms, "model_namespacing": self.identifiers}
        return {name for name, value in on.items() if value}

    @property
    def command_line(self) -> tuple[str, ...]:
        """The options of a tritonserver with the same rate limiter and metrics."""
        limits = [] if self.rate_limiter is None else self.rate_limiter.options
        return (*limits, *(f"--metrics-config={setting}" for setting in self.metrics_config.settings))

    def set_strict(self, strict: bool) -> None:
        with self._lock:
            self.strict = strict
            for versions in (*self._versions.values(), *self._own.values()):
                for model in versions.values():
                    model.outputs.strict = strict

    def find(self, name: str, version: int = -1) -> LoadedModel | None:
        """Return the model version that serves a request, or None."""
        model = self._newest.get(name) if version == -1 else self._versions.get(name, {}).get(version)
        return None if model is not None and self.identifiers and model.name != model.spec.name else model

    def find_key(self, key: str, version: int = -1) -> LoadedModel | None:
        """Return a model version that its key identifies also if several namespaces have its name."""
        return self._newest.get(key) if version == -1 else self._versions.get(key, {}).get(version)

    def elsewhere(self, name: str) -> str:
        """Return the remedy for a model that only another repository serves; "" for other models."""
        others = name not in self._newest and any(other.find(name) is not None for other in list(servers))
        return "another repository of this process serves it: pass that one, `repo=...`" if others else ""

    def missed(self, name: str, version: int = -1) -> LoadedModel | None:
        """Load a model on demand, if hooks can, and return it."""
        if not self.on_missing:
            return None
        self._unloadable[name] = "; ".join(filter(None, [hook(name) for hook in list(self.on_missing)]))
        return self.find(name, version)

    def unknown(self, name: str, version: int) -> str:
        """Return the error for a request to a model that does not serve."""
        why = self.why_closed or self._unloadable.get(name)
        problem = self.why_unknown(name, version)
        return running(c_text(name), f"{problem} Why: {why}" if why else problem)

    def why_unknown(self, name: str, version: int) -> str:
        """Return the error for a name or a version that does not serve, in Triton's words."""
        if self.identifiers is None:
            return unknown_model(name, version, self.known_versions(name))
        identifiers = self.identifiers(name)
        if identifiers is None:
            return unknown_model(name, version, ())
        if len(identifiers) != 1:
            return unidentified(name, identifiers)
        return unknown_model(identifiers[0], version, self.known_versions(name))

    def note_failure(self, error: BaseException) -> None:
        """Keep the exception of a model for post-mortem debugging."""
        self.last_failure = error

    def serving(self, name: str) -> dict[int, LoadedModel]:
        return dict(self._versions.get(name, {}))

    def own(self, name: str) -> dict[int, LoadedModel]:
        """Return the loaded versions beneath their substitutes."""
        return dict(self._own.get(name) or self._versions.get(name, {}))

    def names(self) -> list[str]:
        return sorted(self._versions)

    def replace(self, name: str, versions: dict[int, LoadedModel]) -> list[LoadedModel]:
        """Put versions of a model in service; close and return the replaced ones."""
        before = self.exchange(name, versions)
        return self.close_all(m for m in before.values() if m not in versions.values())

    def close_all(self, models: Iterable[LoadedModel]) -> list[LoadedModel]:
        """Close models, and wait for the `finalize` of those without a request in flight."""
        closing = list(models)
        if closing:
            self.last_failure = None  # its traceback keeps the variables of every frame alive, and so models' memory
        wait_until_closed([model for model in closing if model.close()])
        return closing

    def exchange(self, name: str, versions: dict[int, LoadedModel]) -> dict[int, LoadedModel]:
        """Put versions in service; return the replaced ones without closing them."""
        return self._put(name, dict(versions), self._substitutes.get(name, []))

    def substitute(self, name: str, substitute: Substitute) -> None:
        """Route a model's requests to a substitute until `restore`; the caller holds the lock of the name."""
        self._put(name, self.own(name), [*self._substitutes.get(name, ()), substitute])

    def restore(self, name: str, substitute: Substitute) -> None:
        """Remove a substitute; other substitutes of the model stay."""
        others = [other for other in self._substitutes.get(name, ()) if other is not substitute]
        self._put(name, self.own(name), others)
        substitute.close_replaced()

    def _put(self, name: str, own: dict[int, LoadedModel], substitutes: list[Substitute]) -> dict[int, LoadedModel]:
        versions = substitutes[-1].serve_for(own) if substitutes else own
        for callback in list(self.entering):
            callback(versions)
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
        for substitute in substitutes:
            substitute.close_replaced()
        return before

    def load_for_model(self, who: str, name: str, config: str, files: dict[str, bytes] | None) -> tuple[str, ...]:
        """Load a model for `pb_utils.load_model`; `who` is the calling instance. Return warnings about its files."""
        try:
            record = self._loader.load(name, config or None, files)
        except Exception as error:
            raise failed_for(who, "Failed to load model", _tritons_reason(error, name)) from error
        if not files:
            return ()
        warnings: tuple[str, ...] = record.warnings
        if len(files) > 1:
            warnings = (*warnings, _MIXED_UP.format(name, len(files)))
        for warning in warnings:  # `initialize` has no response
            log.warning(warning)
        return warnings

    def unload_for_model(self, who: str, name: str, unload_dependents: bool) -> None:
        try:
            self._loader.unload(name, unload_dependents)
        except Exception as error:
            raise failed_for(who, "Failed to unload model", _tritons_reason(error, name)) from error

    def is_ready_for_model(self, who: str, name: str, version: str) -> bool:
        number = -1
        if version:
            if not version.isascii() or not version.isdigit() or int(version) <= 0:
                raise failed_for(
                    who,
                    "Failed to check model readiness",
                    f"failed to get model version from specified version string '{version}' (details: stol), "
                    "version should be an integral value > 0",
                )
            number = int(version)
        model = self.find(name, number) or self.missed(name, number)
        if model is None:
            problem = self.why_unknown(name, number)
            raise failed_for(who, "Failed to check model readiness", problem)
        try:
            return model.ready()
        except Exception as error:
            log.warning("is_ready of %s raised %s", name, describe(error).message)
            return False

    def metric_family(self, who: str, directory: str, name: str, description: str, kind: str) -> Any:
        family = _family(who, self._loader.metrics.family, name, description, kind)
        maker = (who, directory)
        with self._lock:
            self._families.setdefault(maker, WeakSet()).add(family)
        return family

    def keep_metrics(self, instance: str, directory: str) -> None:
        """Keep the values of an instance's metrics after the instance has ended, as Triton does."""
        with self._lock:
            for family in list(self._families.pop((instance, directory), ())):
                family.kept = True


def _tritons_reason(error: Exception, name: str) -> str:
    """Return Triton's message for a model that cannot be loaded or unloaded."""
    unknown = POLL_FAILED.format(name=name) if isinstance(error, (ModelNotFoundError, InvalidNameError)) else str(error)
    return (getattr(error, "reason", "") if isinstance(error, BLSError) else "") or unknown


def _family(who: str, make: Callable[..., Any], *args: str) -> _Family:
    try:
        return _Family(who, make(*args))
    except ValueError as error:
        raise failed_for(who, "Error when creating MetricFamily", str(error)) from error


class _Family:
    """A metric family whose errors are worded as Triton's."""

    def __init__(self, instance: str, family: Any) -> None:
        self.instance, self._family = instance, family
        self._held: list[Any] = []
        self.kept = False

    def metric(self, labels: dict[str, str], buckets: list[float] | None) -> Any:
        try:
            metric = self._family.metric(labels, buckets, hold=True)
        except ValueError as error:
            raise failed_for(self.instance, "Error when creating Metric", str(error)) from error
        self._held.append(metric)
        return metric

    def drop(self) -> None:
        """Release the metrics made here. Takes no locks, because a destructor calls it."""
        if not self.kept:
            self._family.release(self._held)


servers: WeakSet[Server] = WeakSet()  # all that have not been garbage-collected
_runtime.loose_family = lambda *args: _family("called directly", Metrics().family, *args)
