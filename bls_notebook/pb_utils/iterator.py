"""`ResponseIterator`: the responses of a decoupled model, as they arrive."""

from __future__ import annotations

from typing import Protocol

from .response import InferenceResponse

__all__ = ["ResponseIterator", "ResponseStream"]


class ResponseStream(Protocol):
    """The engine's side of a stream."""

    def next_response(self) -> tuple[InferenceResponse, bool]:
        """Wait for the next response; True with the last one. Raises only for an interrupt."""

    def cancel(self) -> None:
        """Ask the model to stop."""

    def discard(self) -> None:
        """Nobody reads any more. Takes no locks; called by a destructor."""


class ResponseIterator:
    """Walks the responses of a BLS request to a decoupled model.

    It waits for each response, ends after the final one, and can be walked again from the start then.
    A final flag that was sent alone is an empty response. Use it from one thread at a time.

    Notes
    -----
    Mirrors `ResponseIterator` of python_backend/src/pb_response_iterator.cc; an error that the model
    sends before its final response is not handed on (as there).
    """

    __slots__ = ("__weakref__", "_done", "_index", "_responses", "_stream")

    def __init__(self, stream: ResponseStream) -> None:
        self._stream = stream
        self._responses: list[InferenceResponse] = []
        self._index = 0
        self._done = False

    def __iter__(self) -> ResponseIterator:
        if self._done and self._index >= len(self._responses):
            self._index = 0
        return self

    def __next__(self) -> InferenceResponse:
        if self._done:
            if self._index < len(self._responses):
                self._index += 1
                return self._responses[self._index - 1]
            raise StopIteration
        while True:
            response, final = self._stream.next_response()
            if final or response._error is None:
                break
        self._responses.append(response)
        if final:
            self._done = True
            self._index = len(self._responses)
        return response

    def cancel(self) -> None:
        """Ask the model to stop; its sender's `is_cancelled()` says so from now on."""
        if not self._done:
            self._stream.cancel()

    def __del__(self) -> None:
        stream = getattr(self, "_stream", None)
        if stream is not None and not self._done:
            stream.discard()
