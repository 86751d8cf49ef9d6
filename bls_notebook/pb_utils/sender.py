"""`InferenceResponseSender`: how a model answers a request before or after `execute` returns."""

from __future__ import annotations

from typing import Protocol

from .errors import TritonModelException
from .response import InferenceResponse

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
CLOSED = "Unable to send response. Response sender has been closed."


class Answerable(Protocol):
    """The engine's side of a request: takes its answers."""

    @property
    def cancelled(self) -> bool:
        """Whether the requester has given up waiting."""

    def send(self, response: InferenceResponse | None, final: bool) -> None:
        """Deliver a response; raises TritonModelException where Triton's sender does."""

    def drop_sender(self) -> None:
        """The sender is gone: nobody can answer any more. Takes no locks; called by a destructor."""


class ByHand:
    """Answers a request that no server sent: made in a test, for a model that is called directly.

    Attributes
    ----------
    responses : list of InferenceResponse
        What was sent so far.
    final : bool
        Whether no more may follow.
    """

    cancelled = False

    def __init__(self) -> None:
        self.responses: list[InferenceResponse] = []
        self.final = False

    def send(self, response: InferenceResponse | None, final: bool) -> None:
        """Keep a response; refused after the final flag, as by a server."""
        if self.final:
            raise TritonModelException(CLOSED)
        if response is not None:
            self.responses.append(response)
        self.final = final

    def drop_sender(self) -> None:
        """Nobody waits."""


class InferenceResponseSender:
    """Sends the responses of one request; usable from any thread.

    Notes
    -----
    Mirrors `ResponseSender` of python_backend/src/response_sender.cc. A sender that is dropped without
    its final flag ends the request with an error (the real server keeps its caller waiting).
    """

    __slots__ = ("__weakref__", "_request")

    def __init__(self, request: Answerable) -> None:
        self._request = request

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Send a response.

        Parameters
        ----------
        response : InferenceResponse
            May be left out where `flags` says that no more follow.
        flags : int
            0, or `TRITONSERVER_RESPONSE_COMPLETE_FINAL` with or after the last response.

        Raises
        ------
        TritonModelException
            An unsupported flag, nothing to send, closed already, or a second response of a model
            that is not decoupled.
        TypeError
            `response` is not an InferenceResponse.
        """
        if response is not None and not isinstance(response, InferenceResponse):
            raise TypeError(
                "send(): incompatible function arguments: send(response: InferenceResponse = None, "
                f"flags: int = 0); got response {response!r} of type {type(response).__name__}"
            )
        if not isinstance(flags, int):
            raise TypeError(f"send(): flags must be int, got {flags!r}")
        if flags not in (0, TRITONSERVER_RESPONSE_COMPLETE_FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if response is None and flags == 0:
            raise TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )
        self._request.send(response, flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def is_cancelled(self) -> bool:
        """Whether the requester has given up waiting."""
        return self._request.cancelled

    def __del__(self) -> None:
        request = getattr(self, "_request", None)
        if request is not None:
            request.drop_sender()
