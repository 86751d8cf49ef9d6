"""Access to an endpoint: the token, the limits, and the counts of requests."""

from __future__ import annotations

import hmac
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bls_notebook.network.kserve.errors import UNAVAILABLE, ProtocolError, refuse
from bls_notebook.records.errors import ErrorRecord

UNAUTHORIZED = "Unauthorized: send the header 'authorization: Bearer <token>' with the token that the notebook shows"
_LOOPBACK = re.compile(r"(?:https?://)?(?:127\.\d+\.\d+\.\d+|localhost|\[::1\])(?::\d+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Limits:
    """What clients may use.

    Bytes of a request's ``body``, compressed or not, and of its ``headers``; ``requests`` under way and HTTP
    ``connections`` open at once; ``patience`` in seconds to send the headers, and again for the body.
    """

    body: int = 256 << 20
    requests: int = 1024
    connections: int = 1024
    headers: int = 64 << 10
    patience: float = 60.0


class Admission:
    """The requests of one endpoint: which may enter, how many are under way, and how they ended.

    Used in the endpoint's event loop, read from any thread.
    """

    def __init__(self, token: str, limits: Limits) -> None:
        self.limits = limits
        self.under_way = 0
        self.last_error: ErrorRecord | None = None
        self._expected = f"Bearer {token}".encode() if token else b""
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()  # (model, "requests" or "failed")

    def authorized(self, authorization: str | bytes | None) -> bool:
        """Whether a request with this header may be served."""
        if not self._expected:
            return True
        given = authorization.encode("utf-8", "replace") if isinstance(authorization, str) else authorization
        return given is not None and hmac.compare_digest(given, self._expected)

    def is_foreign(self, host: str, origin: str) -> bool:
        """Whether a web page sends a request, instead of a program of this machine.

        Any page may have a browser send requests here. Without a token, these two headers give it away.
        """
        if self._expected:
            return False
        return any(text and not _LOOPBACK.fullmatch(text) for text in (host, origin))

    def enter(self) -> None:
        """Begin a request; ProtocolError if too many are under way."""
        if self.under_way >= self.limits.requests:
            refuse(
                f"{self.under_way} requests are under way, the most that this endpoint takes; try again", UNAVAILABLE
            )
        self.under_way += 1

    def leave(self, model: str, error: BaseException | None) -> None:
        """End a request to a model, and count it; `error`: how it failed."""
        self.under_way -= 1
        with self._lock:
            self._counts[model, "requests"] += 1
            self._counts[model, "failed"] += error is not None
        if isinstance(error, ProtocolError):
            refused = ErrorRecord(error.message, error.code.name, (model,), stage="refused")
            self.last_error = error.origin or refused

    @contextmanager
    def request(self, model: str) -> Iterator[list[BaseException]]:
        """Enter, and leave at the end of the ``with``. An error appended to the yielded list counts as a failure."""
        self.enter()
        errors: list[BaseException] = []
        try:
            yield errors
        except BaseException as error:
            errors.append(error)
            raise
        finally:
            self.leave(model, errors[-1] if errors else None)

    def counted(self, model: str) -> tuple[int, int]:
        """Return how many requests a model had, and how many of them failed."""
        with self._lock:
            return self._counts[model, "requests"], self._counts[model, "failed"]
