"""`Client`: the connection to one server, for any number of concurrent requests.

Guarantees: an error of the server keeps its text and code. If the server is lost, all requests, those in flight
included, fail with one clear error; its models work again as soon as it answers. A server that neither answers
nor closes the connection counts as lost within `PATIENCE` seconds. A request that the server may have started
is never sent again. A closed client leaves no thread and no connection.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bls_notebook.backends import Exchange
from bls_notebook.network.limits import PROBE_SECONDS, QUERY_SECONDS, TENSORS
from bls_notebook.pb_utils import InferenceRequest
from bls_notebook.pb_utils.errors import ErrorCode, TritonError
from bls_notebook.pb_utils.response import InferenceResponse

from .address import Address

_DIGITS = 18  # of a version
SEEK_SECONDS = 0.5  # between probes of a lost server
PATIENCE = 3 * PROBE_SECONDS
RETRIES = (0.05, 0.2)  # seconds before each retry of a request that could not be sent


class ServerError(Exception):
    """A server answered with an error, or not at all.

    `lost`: why there was no answer, as text for users; else empty. `sent`: whether the server may have
    started the request.
    """

    def __init__(self, message: str, code: ErrorCode, lost: str = "", sent: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.lost = lost
        self.sent = sent


class Client:
    """A connection to one server; subclasses implement HTTP and gRPC."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.server = ""  # name and version, set by `describe`
        self.extensions: frozenset[str] = frozenset()
        self.lost = ""  # why the server does not answer; empty while it does
        self.closed = False
        self.deadline = math.inf  # of all queries of a `connect`, by `time.monotonic`
        self.when_changed: Callable[[], None] | None = None  # called when the server is lost or back
        self._users = 0
        self._under_way: dict[Exchange, float] = {}  # requests in flight, and their start times
        self._lock = threading.Lock()
        self._news = threading.Event()  # wakes the watcher
        self._suspect = False  # an error suggests that the server may be lost
        self._idle = True  # the watcher has no requests to watch, or has not started
        self._watcher: threading.Thread | None = None
        weakref.finalize(self, self._news.set)

    def exchange(self, name: str, version: str, request: InferenceRequest, all_outputs: bool) -> Exchange:
        """Return a request to a model, ready to be sent; ValueError if the protocol cannot carry it."""
        raise NotImplementedError

    def query(self, what: str, name: str = "", version: str = "", seconds: float = QUERY_SECONDS) -> Any:
        """Query the server; return its answer as JSON of the KServe v2 protocol.

        `what` is one of ``live``, ``ready``, ``server``, ``index``, ``model``, ``config`` and ``statistics``.
        """
        raise NotImplementedError

    def remaining(self, seconds: float) -> float:
        """Return the timeout of a query, which ends at the deadline; ServerError if that has passed."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise self.unanswered("its answers took too long altogether", True)
        return min(seconds, left)

    def _reconnect(self) -> None:
        """Replace a connection that no longer delivers answers."""

    def _hang_up(self) -> None:
        """Close the connection."""

    def live(self, seconds: float) -> None:
        """Probe the server; ServerError if it does not answer within `seconds`."""
        try:
            self.query("live", seconds=seconds)
        except ServerError as error:
            if error.lost:
                raise

    def describe(self) -> None:
        """Query the server's metadata, and set `server` and `extensions`."""
        document = self.query("server")
        self.server = " ".join(str(document[key]) for key in ("name", "version") if document.get(key))
        extensions = document.get("extensions")
        self.extensions = frozenset(map(str, extensions)) if isinstance(extensions, list) else frozenset()

    def index(self) -> list[tuple[str, str, str]]:
        """Return name, version and state of each model in the repository index; ServerError if there is none."""
        rows = [row for row in self.query("index") if isinstance(row, dict)]
        return [tuple(str(row.get(key) or "") for key in ("name", "version", "state")) for row in rows]  # type: ignore[misc]

    def metadata(self, name: str, version: str) -> dict[str, Any]:
        """Return a model's metadata, its fields converted to their types: versions, platform, inputs, outputs."""
        document = self.query("model", name, version)
        try:
            _check_counts(document, ("versions", "inputs", "outputs"))
            versions = [str(version) for version in document.get("versions") or ()]
            if any(len(version) > _DIGITS for version in versions):
                raise ValueError("a version is too long")
            return {
                "versions": versions,
                "platform": str(document.get("platform") or ""),
                "inputs": _tensors(document.get("inputs") or ()),
                "outputs": _tensors(document.get("outputs") or ()),
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise no_kserve("a model's metadata", f"{type(error).__name__}: {error}") from error

    def config(self, name: str, version: str) -> Mapping[str, Any] | None:
        """Return a model's configuration; None if the server lacks this extension."""
        try:
            config: Mapping[str, Any] = self.query("config", name, version)
            _check_counts(config, ("input", "output"))
        except ServerError as error:
            if error.code is ErrorCode.UNSUPPORTED:
                return None
            raise
        except (TypeError, ValueError) as error:
            raise no_kserve("a model's configuration", str(error)) from error
        return config

    def statistics(self, name: str, version: str, seconds: float) -> list[dict[str, Any]]:
        """Return Triton's statistics of a model's versions (of all models without a name); empty if unavailable."""
        try:
            return list(self.query("statistics", name, version, seconds).get("model_stats", ()))
        except (ServerError, AttributeError, TypeError):  # not a Triton server, perhaps
            return []

    def all_statistics(self, seconds: float) -> list[dict[str, Any]]:
        """Return Triton's statistics of all models; empty if they do not arrive within `seconds`."""
        return self.statistics("", "", seconds)

    def take(self) -> None:
        """Add a user."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """Remove a user; the last one closes the connection."""
        with self._lock:
            self._users -= 1
            last = self._users <= 0
        if last:
            self.close()

    def close(self) -> None:
        """Cancel requests in flight and close the connection; may be called twice."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            requests = list(self._under_way.copy())
        self._news.set()
        for exchange in requests:
            exchange.cancel()
        self._hang_up()

    def begun(self, exchange: Exchange) -> None:
        """Record that a request is being sent."""
        self._under_way[exchange] = time.monotonic()
        if self._idle:
            self._watch()

    def over(self, exchange: Exchange) -> None:
        """Record that a request has ended."""
        self._under_way.pop(exchange, None)

    def failed(self, error: ServerError) -> InferenceResponse:
        """Return the response of a failed request, and record if the server is lost."""
        if error.lost and error.code is not ErrorCode.CANCELLED and not self.closed:
            self._set_lost(error.lost)
        elif error.code is ErrorCode.UNAVAILABLE and not self.lost:
            self._suspect = True
            self._watch()
        return InferenceResponse([], TritonError(str(error), error.code))

    def cancelled(self, lost: str) -> ServerError:
        """Return the error of a cancelled request: its sender cancelled it, or the server is `lost`."""
        if lost or self.closed:
            return self.unanswered(lost, True)
        return ServerError("the request was cancelled", ErrorCode.CANCELLED)

    def timed_out(self) -> ServerError:
        """Return the error of a request that took too long."""
        return ServerError(
            f"{self.address}: no answer within {self.address.timeout:g} s, the timeout= of bls.connect; "
            "the server may still run the request",
            ErrorCode.UNAVAILABLE,
        )

    def unanswered(self, why: str, sent: bool) -> ServerError:
        """Return the error of a request that the server did not answer."""
        if self.closed:
            return ServerError(
                f"the connection to {self.address} was closed before the request was answered",
                ErrorCode.CANCELLED,
                sent=sent,
            )
        problem = (
            "the connection was lost during the request, which the server may have started"
            if sent
            else "the server does not answer"
        )
        return ServerError(
            f"{self.address}: {problem} ({why}). Check the server; its models serve again as soon as it answers",
            ErrorCode.UNAVAILABLE,
            why,
            sent,
        )

    def _set_lost(self, lost: str) -> None:
        with self._lock:
            changed = bool(lost) is not bool(self.lost)
            self.lost = lost
        if changed and self.when_changed is not None:
            self.when_changed()
        if lost:
            self._watch()

    def _watch(self) -> None:
        with self._lock:
            if self.closed:
                return
            self._idle = False
            self._news.set()
            if self._watcher is None:
                self._watcher = threading.Thread(
                    target=_watch, args=(weakref.ref(self), self._news), name="bls-remote", daemon=True
                )
                self._watcher.start()

    def _probe(self, silent: list[float]) -> float | None:
        """Probe the server if necessary; return the seconds until the next probe, None to wait for a request.

        `silent` has the times of the latest consecutive probes without an answer.
        """
        if self.lost:
            try:
                self.live(PROBE_SECONDS)
            except ServerError:
                return SEEK_SECONDS
            silent.clear()
            self._set_lost("")
            return PROBE_SECONDS
        suspect, self._suspect = self._suspect, False
        with self._lock:
            oldest = min(self._under_way.copy().values(), default=None)
            if oldest is None and not suspect:
                silent.clear()
                self._idle = True
                return None
        if not suspect and oldest and time.monotonic() - oldest < PROBE_SECONDS:
            return PROBE_SECONDS
        try:
            self.live(PROBE_SECONDS)
            silent.clear()
        except ServerError as error:
            if not error.lost or self.closed:
                return PROBE_SECONDS
            silent.append(time.monotonic())
            if len(silent) > 1 or suspect:
                why = error.lost if suspect else f"no answer for {PATIENCE:g} s"
                self._set_lost(why)
                for exchange in self._under_way.copy():
                    exchange.cancel(why)
                self._reconnect()
                return SEEK_SECONDS
        return PROBE_SECONDS


def _tensors(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    names = ("name", "datatype")
    return [{**{name: str(row[name]) for name in names}, "shape": [*map(int, row.get("shape") or ())]} for row in rows]


def _check_counts(document: Mapping[str, Any], keys: Iterable[str]) -> None:
    for key in keys:
        if len(document.get(key) or ()) > TENSORS:
            raise ValueError(f"more than {TENSORS:,} {key}")


def no_kserve(query: str, why: str) -> ServerError:
    """Return the error for an answer that violates the protocol."""
    message = f"the answer to {query} violates the KServe v2 protocol ({why}); check that it is a KServe v2 server"
    return ServerError(message, ErrorCode.INTERNAL)


def _watch(reference: weakref.ref[Client], news: threading.Event) -> None:
    """Probe a client's server until the client is closed or collected."""
    silent: list[float] = []
    while True:
        news.clear()
        link = reference()
        if link is None or link.closed:
            return
        pause = link._probe(silent)
        del link
        news.wait(pause)
