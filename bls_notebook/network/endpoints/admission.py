"""Access control of an endpoint: the token, the limits, and the counts of requests."""

from __future__ import annotations

import asyncio
import hmac
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from bls_notebook.devices import return_free_memory
from bls_notebook.network.kserve.errors import UNAVAILABLE, ProtocolError, refuse
from bls_notebook.network.limits import DECODERS, INLINE_BYTES, RETURN_SECONDS, RETURNED_BYTES, Limits
from bls_notebook.records import ErrorRecord

from .header_options import HeaderOptions
from .served_models import in_thread

UNAUTHORIZED = "Unauthorized: send the header 'authorization: Bearer <token>' with the token that the notebook shows"
_Result = TypeVar("_Result")
_LOOPBACK = re.compile(r"(?:https?://)?(?:127\.\d+\.\d+\.\d+|localhost|\[::1\])(?::\d+)?", re.IGNORECASE)


class Body:
    """Counts the bytes that a request keeps in memory; small ones are not counted. A context manager."""

    __slots__ = ("_admission", "_counted", "_size")

    def __init__(self, admission: Admission) -> None:
        self._admission, self._size, self._counted = admission, 0, 0

    def add(self, count: int) -> None:
        """Add bytes before they are kept; ProtocolError if that exceeds the limits."""
        self._size += count
        most = self._admission.limits.body
        if self._size > min(INLINE_BYTES, most):
            if self._size > most:
                text = f"the request is larger than the {most:,} bytes that this endpoint accepts (body_limit)"
                refuse(text)
            count, self._counted = self._size - self._counted, self._size
            self._admission.count_body(count)

    def release(self) -> None:
        """The body is no longer in memory."""
        self._admission.count_body(-self._counted)
        self._size = self._counted = 0

    def __enter__(self) -> Body:
        return self

    def __exit__(self, *_: object) -> None:
        if self._counted:
            self.release()


class CountedRequest:
    """Counts a request that runs in the ``with``; an error appended to the list that it returns is a failure."""

    __slots__ = ("_admission", "_errors", "_model")

    def __init__(self, admission: Admission, model: str) -> None:
        self._admission, self._model = admission, model

    def __enter__(self) -> list[BaseException]:
        self._admission.enter()
        self._errors: list[BaseException] = []
        return self._errors

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._admission.leave(self._model, error or (self._errors[-1] if self._errors else None))
        self._errors.clear()  # a cycle of errors and frames would keep the request's body


class Admission:
    """Admits the requests of one endpoint and counts them.

    The endpoint's event loop calls it; any thread may read the counts.
    """

    def __init__(self, token: str, limits: Limits, http: HeaderOptions, grpc: HeaderOptions) -> None:
        self.limits, self.http, self.grpc = limits, http, grpc
        self.under_way = 0
        self._body_bytes = self._freed_bytes = 0  # of large bodies: in memory, and freed since the last return
        self.drained = asyncio.Event()  # set whenever a waiting `drain` has to look
        self._closed = False  # no new requests
        self._is_returning = False  # a timer will return the freed memory
        self._decoders = asyncio.Semaphore(DECODERS)
        self.last_error: ErrorRecord | None = None
        self._expected = f"Bearer {token}".encode() if token else b""
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()  # (model, "requests" or "failed")

    def authorized(self, authorization: str | bytes | None) -> bool:
        """Return whether a request with this header may be served."""
        if not self._expected:
            return True
        sent = authorization.encode("utf-8", "replace") if isinstance(authorization, str) else authorization
        return sent is not None and hmac.compare_digest(sent, self._expected)

    def is_foreign(self, host: str, origin: str) -> bool:
        """Return whether a web page, not a program on this machine, sent a request with these headers.

        Any page can make a browser send requests here. If no token protects the endpoint, these headers reveal it.
        """
        if self._expected:
            return False
        return any(text and not _LOOPBACK.fullmatch(text) for text in (host, origin))

    def enter(self) -> None:
        """Begin a request; ProtocolError if too many are in flight, or the endpoint stops."""
        if self._closed:
            refuse("the endpoint is stopping, and accepts no new requests", UNAVAILABLE)
        if self.under_way >= self.limits.requests:
            refuse(f"{self.under_way} requests are in flight, the limit of this endpoint; try again later", UNAVAILABLE)
        self.under_way += 1

    def leave(self, model: str, error: BaseException | None) -> None:
        """End a request to a model, and count it; `error` is the exception that failed it."""
        self.under_way -= 1
        if self._closed:
            self.drained.set()
        with self._lock:
            self._counts[model, "requests"] += 1
            self._counts[model, "failed"] += error is not None
        if isinstance(error, ProtocolError):
            self.last_error = error.origin or ErrorRecord(error.message, error.code.name, (model,), stage="refused")

    async def drain(self, deadline: Callable[[], float]) -> None:
        """Refuse new requests, and wait until those in flight have ended or the deadline has passed."""
        self._closed = True
        while self.under_way and (left := deadline() - time.monotonic()) > 0:
            self.drained.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.drained.wait(), left)

    def count_body(self, count: int) -> None:
        """Add bytes to those of all large bodies in memory, or remove a negative number."""
        if not count:
            return
        with self._lock:
            self._body_bytes += count
            self._freed_bytes -= min(count, 0)
            # The C library would keep the memory; one call serves large requests in quick succession.
            if self._freed_bytes >= RETURNED_BYTES and not self._is_returning:
                self._is_returning = True
                timer = threading.Timer(RETURN_SECONDS, self._return_memory)
                timer.daemon = True
                timer.start()
        if count > 0 and self._body_bytes > self.limits.body * self.limits.bodies:
            refuse("the requests in flight are larger than this endpoint accepts; try again later", UNAVAILABLE)

    def _return_memory(self) -> None:
        with self._lock:  # first, so that memory which is freed meanwhile starts another timer
            self._freed_bytes, self._is_returning = 0, False
        return_free_memory()

    async def work(self, size: int, function: Callable[..., _Result], *arguments: Any) -> _Result:
        """Decode or encode `size` bytes: many in a thread, so that the event loop answers others meanwhile."""
        if size <= INLINE_BYTES:
            return function(*arguments)
        async with self._decoders:
            return await in_thread(function, *arguments)

    def counted(self, model: str) -> tuple[int, int]:
        """Return the number of requests to a model, and the number of failed ones."""
        with self._lock:
            return self._counts[model, "requests"], self._counts[model, "failed"]
