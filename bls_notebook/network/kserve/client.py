"""`Client`: the connection to one server, over which many requests are under way at a time.

Guarantees: an error of the server keeps its text and code; a server that is lost is one clear error, for what
is under way too, and is there again by itself once it answers: nothing has to be connected anew. A server
that neither answers nor closes the connection (it was stopped, or the network drops everything) counts as
lost `PATIENCE` seconds later at most. Nothing is sent twice that the server may have begun. A link that is
closed leaves no thread and no connection.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from bls_notebook.backends.remote import REPORT_SECONDS, Exchange
from bls_notebook.pb_utils.errors import ErrorCode, TritonError
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from .address import Address

ASK_SECONDS = 10.0  # for what is not inference
PROBE_SECONDS = 5.0  # between looks at a server that has requests under way, and for its answer
SEEK_SECONDS = 0.5  # between looks at a server that is lost
PATIENCE = 3 * PROBE_SECONDS
RETRIES = (0.05, 0.2)  # seconds before a request that could not even be sent is tried again


class ServerError(Exception):
    """A server's answer that is an error, or none at all.

    `lost`: where there was no answer: why, in words that may be shown; else empty. `sent`: whether the server
    may have begun with the request.
    """

    def __init__(self, message: str, code: ErrorCode, lost: str = "", sent: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.lost = lost
        self.sent = sent


class Client:
    """What connections over gRPC and HTTP have in common."""

    waits: ClassVar[tuple[Callable[..., Any], ...]] = ()  # functions in which Ctrl-C may strike

    def __init__(self, address: Address) -> None:
        self.address = address
        self.server = ""  # name and version, as it says
        self.extensions: frozenset[str] = frozenset()
        self.lost = ""  # why it does not answer, while it does not
        self.closed = False
        self.when_changed: Callable[[], None] | None = None  # called when it was lost, and when it is back
        self.report_waits: list[Callable[[], None]] = []  # called by the watcher, with no lock held
        self._users = 0
        self._under_way: dict[Exchange, float] = {}  # and since when
        self._lock = threading.Lock()
        self._news = threading.Event()  # wakes the watcher
        self._suspect = False  # an error may mean that it is lost
        self._woken = False
        self._idle = True  # the watcher has nothing to watch, or there is none yet
        self._watcher: threading.Thread | None = None
        weakref.finalize(self, self._news.set)

    # -- what a protocol does --------------------------------------------------------------------------

    def exchange(self, name: str, version: str, request: InferenceRequest, all_outputs: bool) -> Exchange:
        """Return a request to a model, ready to be sent; ValueError where it cannot be."""
        raise NotImplementedError

    def live(self, seconds: float) -> None:
        """Return if the server answers within so many seconds, else raise ServerError."""
        raise NotImplementedError

    def ready(self, name: str, version: str, seconds: float) -> bool:
        """Whether a model says that it can serve."""
        raise NotImplementedError

    def describe(self) -> None:
        """Ask the server what it is: sets `server` and `extensions`."""
        raise NotImplementedError

    def index(self) -> list[tuple[str, str, str]]:
        """Return name, version and state of each model; ServerError where it has no such list."""
        raise NotImplementedError

    def metadata(self, name: str, version: str) -> dict[str, Any]:
        """Return a model's metadata, as the KServe v2 protocol's JSON has it."""
        raise NotImplementedError

    def config(self, name: str, version: str) -> bytes | Mapping[str, Any] | None:
        """Return a model's configuration: a serialized ModelConfig, or its JSON; None where it has none."""
        raise NotImplementedError

    def statistics(self, name: str, version: str, seconds: float) -> dict[str, Any]:
        """Return a model's statistics, as Triton's JSON has them; those of all models for no name."""
        raise NotImplementedError

    def all_statistics(self, seconds: float) -> list[dict[str, Any]]:
        """Return the server's statistics of its models; empty if it gives none within so many seconds."""
        try:
            return list(self.statistics("", "", seconds).get("model_stats", ()))
        except (ServerError, AttributeError, TypeError):  # or the server is no Triton
            return []

    def _begin_anew(self) -> None:
        """Let go of a connection that nothing comes over, with what is still waited for there."""

    def _hang_up(self) -> None:
        """Close what is open."""

    # -- its life ------------------------------------------------------------------------------------

    def take(self) -> None:
        """Somebody more uses it."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """Somebody uses it no more; the last one closes it."""
        with self._lock:
            self._users -= 1
            last = self._users <= 0
        if last:
            self.close()

    def close(self) -> None:
        """Give up what is under way, and close the connection; nothing happens the second time."""
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
        """A request is being sent."""
        self._under_way[exchange] = time.monotonic()
        if self._idle:
            self._watch()

    def over(self, exchange: Exchange) -> None:
        """A request is under way no more."""
        self._under_way.pop(exchange, None)

    def failed(self, error: ServerError) -> InferenceResponse:
        """Return the response of a request that failed, and take note where the server is lost."""
        if error.lost and error.code is not ErrorCode.CANCELLED and not self.closed:
            self._note(error.lost)
        elif error.code is ErrorCode.UNAVAILABLE and not self.lost:
            self._suspect = True
            self._watch()
        return InferenceResponse([], TritonError(str(error), error.code))

    def cancelled(self, lost: str) -> ServerError:
        """Return the error of a request that was given up, because the server is `lost` or by who sent it."""
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

    # -- watching ------------------------------------------------------------------------------------

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
        """Look whether the server answers; how long to wait until the next look, None for until news.

        `silent` has the moments of the looks in a row that had no answer.
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
        if self._woken and not suspect:  # by a request: one a while, not one each
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
                self._begin_anew()
                return SEEK_SECONDS
        return PROBE_SECONDS


def _watch(reference: weakref.ref[Client], news: threading.Event) -> None:
    """Look after a link, while there is one."""
    silent: list[float] = []
    while True:
        news.clear()
        link = reference()
        if link is None or link.closed:
            return
        pause = link._look(silent)
        del link
        news.wait(pause)
