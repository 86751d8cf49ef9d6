"""Walking the responses of a request to a decoupled model, from outside any model.

Guarantees: a walk that is left early, or dropped, cancels its request; awaiting a response takes no thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from time import perf_counter
from typing import Any
from weakref import ReferenceType

from bls_notebook.engine.calling import SendingExecution
from bls_notebook.engine.waiting.threads import later
from bls_notebook.pb_utils import InferenceRequest, InferenceResponse
from bls_notebook.pb_utils.iterator import ResponseIterator, StreamEnded

from .response import Response

# (request, response, when it was sent, index, final) -> Response
Wrap = Callable[[InferenceRequest, InferenceResponse, float, int, bool], Response]


class _WhenDropped(ReferenceType):  # type: ignore[type-arg]
    """Cancels the request of a walk that is dropped.

    A destructor without Python code: Ctrl-C that hits one of Python code is lost.
    """

    __slots__ = ("stream",)
    stream: Any

    def __new__(cls, walk: _Walk) -> _WhenDropped:
        return super().__new__(cls, walk, later)

    def __init__(self, walk: _Walk) -> None:
        super().__init__(walk, later)  # type: ignore[call-arg]

    def __call__(self) -> None:
        self.stream.cancel()


class _Walk:
    def __init__(self, caller: SendingExecution, request: InferenceRequest, wrap: Wrap) -> None:
        self._caller, self._request, self._wrap = caller, request, wrap
        self._started = 0.0
        self._index = 0
        self._stream: Any = None
        self._responses: Any = None
        self._dropped: _WhenDropped | None = None
        self._over = False
        self._last: Response | None = None

    def _open(self, responses: Any) -> None:
        # A model gets an iterator, whose stream is read here. Dropping the iterator would discard the stream.
        self._responses = responses
        self._stream = responses._stream if isinstance(responses, ResponseIterator) else responses
        self._dropped = _WhenDropped(self)
        self._dropped.stream = self._stream

    def _taken(self, response: InferenceResponse, final: bool) -> Response | None:
        """The response as it is shown; None for a final flag alone, after others."""
        if final:
            self._end()
        if final and self._last is not None and not response._outputs and response._error is None:
            self._last.final = True
            return None
        out = self._wrap(self._request, response, self._started, self._index, final)
        self._last = out
        self._index += 1
        return out

    def close(self) -> None:
        """Give up: the request is cancelled if it is not over."""
        if not self._over:
            self._end()
            if self._stream is not None:
                self._stream.cancel()

    def _end(self) -> None:
        self._over = True
        self._dropped = None


class Walk(_Walk, Iterator[Response]):
    def __next__(self) -> Response:
        if self._over:
            raise StopIteration
        try:
            if self._stream is None:
                self._started = perf_counter()
                self._open(self._caller.exec(self._request, True, False))
            out = self._taken(*self._stream.next_response())
        except StreamEnded:
            self._end()
            out = None
        except BaseException:
            self.close()
            raise
        if out is None:
            raise StopIteration
        return out


class AsyncWalk(_Walk, AsyncIterator[Response]):
    async def __anext__(self) -> Response:
        if self._over:
            raise StopAsyncIteration
        try:
            if self._stream is None:
                self._started = perf_counter()
                self._open(await self._caller.async_exec(self._request, True, False))
            out = self._taken(*await self._stream.next_response_async())
        except StreamEnded:
            self._end()
            out = None
        except BaseException:
            self.close()
            raise
        if out is None:
            raise StopAsyncIteration
        return out

    async def aclose(self) -> None:
        self.close()
