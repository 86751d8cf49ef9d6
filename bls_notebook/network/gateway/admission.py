"""Who may ask, and how much at once: the token, the limits, and the counts of what was asked."""

from __future__ import annotations

import hmac
import re
import threading
from collections import Counter
from dataclasses import dataclass

from bls_notebook.network.kserve.errors import UNAVAILABLE, ProtocolError, refuse
from bls_notebook.records.errors import ErrorRecord

UNAUTHORIZED = "Unauthorized: send the header 'authorization: Bearer <token>' with the token that the notebook shows"
_LOOPBACK = re.compile(r"(?:https?://)?(?:127\.\d+\.\d+\.\d+|localhost|\[::1\])(?::\d+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Limits:
    """What one client may take.

    Bytes of a request's ``body``, compressed or not, and of its ``headers``; ``requests`` under way and HTTP
    ``connections`` open at once; ``patience`` in seconds to send the headers, and again for the body.
    """

    body: int = 256 << 20
    requests: int = 1024
    connections: int = 1024
    headers: int = 64 << 10
    patience: float = 60.0


class Admission:
    """The door of one endpoint; used in its event loop, read from any thread."""

    def __init__(self, token: str, limits: Limits) -> None:
        self.limits = limits
        self._expected = f"Bearer {token}".encode() if token else b""
        self._under_way = 0
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()  # (model, "requests" or "failed")
        self.last_error: ErrorRecord | None = None

    def authorized(self, authorization: str | bytes | None) -> bool:
        """Whether a request that has this header may be answered."""
        if not self._expected:
            return True
        given = authorization.encode("utf-8", "replace") if isinstance(authorization, str) else authorization
        return given is not None and hmac.compare_digest(given, self._expected)

    def is_foreign(self, host: str, origin: str) -> bool:
        """Whether it is a page of the web, and no program of this machine, that sends a request.

        Any page may have a browser send requests here. Without the token, these two headers tell them apart.
        """
        if self._expected:
            return False
        return any(text and not _LOOPBACK.fullmatch(text) for text in (host, origin))

    # -- requests under way ------------------------------------------------------------------------

    def enter(self) -> None:
        """A request begins, unless there are too many."""
        if self._under_way >= self.limits.requests:
            refuse(
                f"{self._under_way} requests are under way, the most that this endpoint takes; try again", UNAVAILABLE
            )
        self._under_way += 1

    def leave(self) -> None:
        """A request has ended."""
        self._under_way -= 1

    @property
    def under_way(self) -> int:
        """How many requests are under way."""
        return self._under_way

    # -- counts ------------------------------------------------------------------------------------

    def count(self, model: str, error: BaseException | None) -> None:
        """Count a request to a model that is there, with what it failed of."""
        with self._lock:
            self._counts[model, "requests"] += 1
            self._counts[model, "failed"] += error is not None
        if isinstance(error, ProtocolError):
            refused = ErrorRecord(error.message, error.code.name, (model,), stage="refused")
            self.last_error = error.origin or refused

    def counted(self, model: str) -> tuple[int, int]:
        """Return how many requests a model had, and how many of them failed."""
        with self._lock:
            return self._counts[model, "requests"], self._counts[model, "failed"]


class CountedRequest:
    """A request to a model: let in, counted, and let out."""

    def __init__(self, admission: Admission, model: str) -> None:
        self._admission, self._model = admission, model
        self.error: BaseException | None = None  # of one that ends well all the same

    def __enter__(self) -> CountedRequest:
        self._admission.enter()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._admission.leave()
        self._admission.count(self._model, error or self.error)
