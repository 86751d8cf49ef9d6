"""`Client`: the connection to one server, over which many requests are under way at a time.

Guarantees: an error of the server keeps its text and code. A lost server is one clear error, also for requests
under way, and its models work again as soon as it answers. A server that neither answers nor closes the
connection counts as lost within `PATIENCE` seconds. No request is sent twice that the server may have begun. A
closed client leaves no thread and no connection.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bls_notebook.backends.protocol import REPORT_SECONDS, Exchange
from bls_notebook.pb_utils.errors import ErrorCode, TritonError
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from .address import Address

QUERY_SECONDS = 10.0
PROBE_SECONDS = 5.0  # between probes of a server with requests under way, and timeout of a probe
SEEK_SECONDS = 0.5  # between probes of a lost server
PATIENCE = 3 * PROBE_SECONDS
RETRIES = (0.05, 0.2)  # seconds before a request that could not be sent is tried again


class ServerError(Exception):
    """A server answered with an error, or not at all.

    `lost`: why there was no answer, in words that may be shown; else empty. `sent`: whether the server may have
    begun with the request.
    """

    def __init__(self, message: str, code: ErrorCode, lost: str = "", sent: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.lost = lost
        self.sent = sent


class Client:
    """A connection to one server; a subclass has the protocol."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.server = ""  # name and version, set by `describe`
        self.extensions: frozenset[str] = frozenset()
        self.lost = ""  # why the server does not answer, while it does not
        self.closed = False
        self.when_changed: Callable[[], None] | None = None  # called when the server is lost or back
        self.report_waits: list[Callable[[], None]] = []  # called by the watcher, with no lock held
        self._users = 0
        self._under_way: dict[Exchange, float] = {}  # and since when
        self._lock = threading.Lock()
        self._news = threading.Event()  # wakes the watcher
        self._suspect = False  # an error may mean that the server is lost
        self._woken = False
        self._idle = True  # the watcher has nothing to watch, or there is none yet
        self._watcher: threading.Thread | None = None
        weakref.finalize(self, self._news.set)

    # -- implemented by each protocol

    def exchange(self, name: str, version: str, request: InferenceRequest, all_outputs: bool) -> Exchange:
        """Return a request to a model, ready to be sent; ValueError if it cannot be sent."""
        raise NotImplementedError

    def query(self, what: str, name: str = "", version: str = "", seconds: float = QUERY_SECONDS) -> Any:
        """Return an answer of the server as the KServe v2 protocol's JSON.

        `what` is one of ``live``, ``ready``, ``server``, ``index``, ``model``, ``config`` and ``statistics``.
        """
        raise NotImplementedError

    def _reconnect(self) -> None:
        """Replace a connection on which nothing arrives any more."""

    def _hang_up(self) -> None:
        """Close the connection."""

    # -- queries

    def live(self, seconds: float) -> None:
        """Return if the server answers in time; else raise ServerError."""
        try:
            self.query("live", seconds=seconds)
        except ServerError as error:
            if error.lost:
                raise

    def describe(self) -> None:
        """Set `server` and `extensions`."""
        document = self.query("server")
        self.server = " ".join(str(document[key]) for key in ("name", "version") if document.get(key))
        extensions = document.get("extensions")
        self.extensions = frozenset(map(str, extensions)) if isinstance(extensions, list) else frozenset()

    def index(self) -> list[tuple[str, str, str]]:
        """Return name, version and state of each model; ServerError if the server has no index."""
        rows = [row for row in self.query("index") if isinstance(row, dict)]
        return [tuple(str(row.get(key) or "") for key in ("name", "version", "state")) for row in rows]  # type: ignore[misc]

    def metadata(self, name: str, version: str) -> dict[str, Any]:
        """Return a model's metadata: versions, platform, inputs and outputs, each of its type."""
        document = self.query("model", name, version)
        try:
            return {
                "versions": [str(version) for version in document.get("versions") or ()],
                "platform": str(document.get("platform") or ""),
                "inputs": _tensors(document.get("inputs") or ()),
                "outputs": _tensors(document.get("outputs") or ()),
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise no_kserve("a model's metadata", f"{type(error).__name__}: {error}") from error

    def config(self, name: str, version: str) -> Mapping[str, Any] | None:
        """Return a model's configuration; None if the server has no configurations."""
        try:
            config: Mapping[str, Any] = self.query("config", name, version)
        except ServerError as error:
            if error.code is ErrorCode.UNSUPPORTED:
                return None
            raise
        return config

    def statistics(self, name: str, version: str, seconds: float) -> list[dict[str, Any]]:
        """Return Triton's statistics of the model's versions, of all models for no name; empty if there are none."""
        try:
            return list(self.query("statistics", name, version, seconds).get("model_stats", ()))
        except (ServerError, AttributeError, TypeError):  # or the server is no Triton
            return []

    def all_statistics(self, seconds: float) -> list[dict[str, Any]]:
        """Return Triton's statistics of all models; empty if there are none within so many seconds."""
        return self.statistics("", "", seconds)

    # -- users and requests under way

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
        """Cancel requests under way and close the connection; may be called twice."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            left = list(self._under_way.copy())
        self._news.set()
        for exchange in left:
            exchange.cancel()
        self._hang_up()

    def begun(self, exchange: Exchange) -> None:
        """Note that a request is being sent."""
        self._under_way[exchange] = time.monotonic()
        if self._idle:
            self._watch()

    def over(self, exchange: Exchange) -> None:
        """Note that a request has ended."""
        self._under_way.pop(exchange, None)

    def failed(self, error: ServerError) -> InferenceResponse:
        """Return the response of a failed request; note it if the server is lost."""
        if error.lost and error.code is not ErrorCode.CANCELLED and not self.closed:
            self._note(error.lost)
        elif error.code is ErrorCode.UNAVAILABLE and not self.lost:
            self._suspect = True
            self._watch()
        return InferenceResponse([], TritonError(str(error), error.code))

    def cancelled(self, lost: str) -> ServerError:
        """Return the error of a request that was cancelled, by its sender or because the server is `lost`."""
        if lost or self.closed:
            return self.unanswered(lost, True)
        return ServerError("the request was cancelled", ErrorCode.CANCELLED)

    def timed_out(self) -> ServerError:
        """Return the error of a request that took too long."""
        return ServerError(
            f"{self.address}: no answer within {self.address.timeout:g} s, the timeout= of bls.connect; "
            "the server may still be at it",
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
        what = (
            "the connection was lost while the request was under way, which the server may have begun"
            if sent
            else "the server does not answer"
        )
        return ServerError(
            f"{self.address}: {what} ({why}). Look after the server there; its models are back here by "
            "themselves when it answers",
            ErrorCode.UNAVAILABLE,
            why,
            sent,
        )

    # -- watching

    def _note(self, lost: str) -> None:
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
            self._woken, self._idle = self._idle, False
            self._news.set()
            if self._watcher is None:
                self._watcher = threading.Thread(
                    target=_watch, args=(weakref.ref(self), self._news), name="bls-remote", daemon=True
                )
                self._watcher.start()

    def _look(self, silent: list[float]) -> float | None:
        """Probe the server if need be; return the seconds until the next probe, None to wait for news.

        `silent` has the times of the latest probes without an answer.
        """
        if self.lost:
            try:
                self.live(PROBE_SECONDS)
            except ServerError:
                return SEEK_SECONDS
            silent.clear()
            self._note("")
            return PROBE_SECONDS
        suspect, self._suspect = self._suspect, False
        if self._woken and not suspect:  # a request woke the watcher: probe later, not for each request
            self._woken = False
            return PROBE_SECONDS
        with self._lock:
            oldest = min(self._under_way.copy().values(), default=None)
            if oldest is None and not suspect:
                silent.clear()
                self._idle = True
                return None
        waited = time.monotonic() - oldest if oldest else 0.0
        if waited >= REPORT_SECONDS:
            for report in list(self.report_waits):
                report()
        if not suspect and oldest and waited < PROBE_SECONDS:
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
                self._note(why)
                for exchange in self._under_way.copy():
                    exchange.cancel(why)
                self._reconnect()
                return SEEK_SECONDS
        return PROBE_SECONDS


def _tensors(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "name": str(row["name"]),
            "datatype": str(row["datatype"]),
            "shape": [int(size) for size in row.get("shape") or ()],
        }
        for row in rows
    ]


def no_kserve(what: str, why: str) -> ServerError:
    """Return the error for an answer that is not as the protocol says."""
    message = f"the answer to {what} is not as the protocol says ({why}); is it a KServe v2 server?"
    return ServerError(message, ErrorCode.INTERNAL)


def _watch(reference: weakref.ref[Client], news: threading.Event) -> None:
    """Probe the server of a client while the client exists."""
    silent: list[float] = []
    while True:
        news.clear()
        link = reference()
        if link is None or link.closed:
            return
        pause = link._look(silent)
        del link
        news.wait(pause)
