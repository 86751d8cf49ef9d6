"""`ResponseIterator`: the responses of a decoupled model, as they arrive."""

from __future__ import annotations

from typing import Protocol

from .response import InferenceResponse


class StreamEnded(Exception):  # noqa: N818 - no error: the end
    """Another reader has had the last response."""


class ResponseStream(Protocol):
    """The engine's side of a stream."""

    def next_response(self) -> tuple[InferenceResponse, bool]:
        """Wait for the next response; True with the last one.

        Raises
        ------
        StreamEnded
        KeyboardInterrupt
        """

    def cancel(self) -> None:
        """Ask the model to stop."""

    def discard(self) -> None:
        """Nobody reads any more. Takes no locks; called by a destructor."""


class ResponseIterator:
    """Walks the responses of a BLS request to a decoupled model.

    It waits for each response, ends after the final one, and can be walked again from the start then.
    A final flag that was sent alone is an empty response. Threads that share it share the responses: each
    goes to one of them, and all end.

    Notes
    -----
    Mirrors `ResponseIterator` of python_backend/src/pb_response_iterator.cc; an error that the model
    sends between its first and its final response is not handed on (as there).
    """

    __slots__ = ("__weakref__", "_again", "_done", "_responses", "_stream")

    def __init__(self, stream: ResponseStream) -> None:
        self._stream = stream
        self._responses: list[InferenceResponse] = []
        self._again: int | None = None  # once it is walked again: how far
        self._done = False

    def __iter__(self) -> ResponseIterator:
        if self._done and (self._again is None or self._again >= len(self._responses)):
            self._again = 0
        return self

    def __next__(self) -> InferenceResponse:
        if self._done:
            at = self._again
            if at is None or at >= len(self._responses):
                raise StopIteration
            self._again = at + 1
            return self._responses[at]
        while True:
            try:
                response, final = self._stream.next_response()
            except StreamEnded:
                raise StopIteration from None
            if final or response._error is None or not self._responses:
                break
        self._responses.append(response)
        if final:
            self._done = True
        return response

    def cancel(self) -> None:
        """Ask the model to stop; its sender's `is_cancelled()` says so from now on."""
        if not self._done:
            self._stream.cancel()

    def __del__(self) -> None:
        stream = getattr(self, "_stream", None)
        if stream is not None and not self._done:
            stream.discard()
