"""`InferenceResponse`, the response sender of a model, and the iterator over a decoupled model's responses."""

from __future__ import annotations

from collections.abc import Sequence
from types import MethodType
from typing import Any, Protocol

from .errors import TritonError, TritonModelException, is_sequence, unpicklable
from .options import parameters_to_json
from .tensor import Tensor


def _type_error(argument: str, value: object, wanted: str) -> TypeError:
    # Without the text of a method's object: a response's is the error that its receiver should have passed on.
    got = value.__qualname__ if isinstance(value, MethodType) else repr(value)
    return TypeError(
        "__init__(): incompatible constructor arguments: InferenceResponse(output_tensors: list[Tensor] "
        f"= [], error: TritonError = None, parameters: dict = None); {argument} must be {wanted}, "
        f"got {got} of type {type(value).__name__}"
    )


class InferenceResponse:
    """The response to one request.

    Parameters
    ----------
    output_tensors : list of Tensor
        The requester gets only the outputs that it requested.
    error : TritonError
        The reason of a failure; a response with an error is sent without outputs.
    parameters : dict
        Text keys; bool, int or text values.

    Raises
    ------
    TypeError, TritonModelException
        An argument, a tensor, or a parameter has the wrong type.
    """

    __slots__ = ("__weakref__", "_arrived", "_error", "_outputs", "_parameters", "_received", "_warnings")

    _received: Any  # the engine's record of an error that a model received

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: TritonError | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> None:
        if output_tensors.__class__ is not list and not is_sequence(output_tensors):
            raise _type_error("output_tensors", output_tensors, "a list of Tensor")
        outputs = list(output_tensors)
        for tensor in outputs:
            if tensor.__class__ is not Tensor and not isinstance(tensor, Tensor):
                if tensor is None:
                    raise TritonModelException("Output tensor for inference response should not be empty.")
                raise _type_error("output_tensors", tensor, "a list of Tensor")
        if error is not None and not isinstance(error, TritonError):
            raise _type_error("error", error, "a TritonError")
        if error is not None and type(error) is not TritonError:
            error = error._plain()  # Triton sends the content of an error, not its Python class
        self._outputs: list[Tensor] = outputs
        self._error = error
        self._parameters = "{}" if parameters is None else parameters_to_json(parameters)
        self._warnings: tuple[str, ...] = ()
        self._arrived = 0.0

    def output_tensors(self) -> list[Tensor]:
        """Return the output tensors."""
        return list(self._outputs)

    def has_error(self) -> bool:
        """Return whether the request failed."""
        return self._error is not None and self._mark_read() is not None

    def error(self) -> TritonError | Any:
        """Return the error, or None."""
        return self._error if self._error is None else self._mark_read()

    def _mark_read(self) -> TritonError | None:
        received = getattr(self, "_received", None)
        if received is not None:
            received.read = True
        return self._error

    def parameters(self) -> str:
        """Return the parameters, as JSON text."""
        return self._parameters

    def __reduce__(self) -> Any:
        raise unpicklable("InferenceResponse")

    def __repr__(self) -> str:
        if self._error is not None:
            return f"InferenceResponse(error={self._error!r})"
        return f"InferenceResponse({self._outputs!r})"


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | Any:
    """Return the output tensor with this name, or None."""
    for tensor in inference_response._outputs:
        if tensor._name == name:
            return tensor
    return None


TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
CLOSED = "Unable to send response. Response sender has been closed."
ENDED = (
    "is_cancelled: the request has ended, and a server may die of this call: ask before the final flag is sent, and "
    "before a model that is not decoupled returns from `execute`"
)


class Answerable(Protocol):
    """The engine's side of a request."""

    def is_cancelled(self) -> bool:
        """Return whether the requester has cancelled the request; TritonModelException if it ended without."""

    def send(self, response: InferenceResponse | None, final: bool) -> None:
        """Deliver a response; raise TritonModelException in the same cases as Triton's sender."""

    def drop_sender(self) -> None:
        """Handle the loss of the last response sender. Takes no locks, because a destructor calls it."""


class ByHand:
    """Collects the responses to a request that a test made for a model that it calls directly."""

    def __init__(self) -> None:
        self.responses: list[InferenceResponse] = []
        self.final = False

    def is_cancelled(self) -> bool:
        """Return False; as the engine, raise TritonModelException after the final flag."""
        if self.final:
            raise TritonModelException(ENDED)
        return False

    def send(self, response: InferenceResponse | None, final: bool) -> None:
        """Keep a response; as in Triton, raise TritonModelException after the final flag."""
        if self.final:
            raise TritonModelException(CLOSED)
        if response is not None:
            self.responses.append(response)
        self.final = final

    def drop_sender(self) -> None:
        """Do nothing: no caller waits."""


class InferenceResponseSender:
    """Sends the responses of one request, from any thread.

    Notes
    -----
    Mirrors `ResponseSender` of python_backend/src/response_sender.cc. If the model drops the sender before it sent the
    final flag, the request ends with an error (the real server keeps the caller waiting).
    """

    __slots__ = ("__weakref__", "_request")

    def __init__(self, request: Answerable) -> None:
        self._request = request

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Send a response.

        Parameters
        ----------
        response : InferenceResponse
            Optional if `flags` says that no more follow.
        flags : int
            0, or `TRITONSERVER_RESPONSE_COMPLETE_FINAL` with or after the last response.

        Raises
        ------
        TritonModelException
            The flag is not supported, there is nothing to send, the sender is closed, or it is a second response of a
            model that is not decoupled.
        TypeError
            An argument has the wrong type.
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
        """Return whether the requester has cancelled the request.

        Raises a TritonModelException once the request has ended.
        """
        return self._request.is_cancelled()

    def __del__(self) -> None:
        request = getattr(self, "_request", None)
        if request is not None:
            request.drop_sender()


class StreamEnded(Exception):  # noqa: N818 - not an error
    """The last response has been read already, by another reader."""


class ResponseStream(Protocol):
    """The engine's side of a stream."""

    def next_response(self) -> tuple[InferenceResponse, bool]:
        """Wait for the next response; True with the last one. Raises StreamEnded or KeyboardInterrupt."""

    def cancel(self) -> None:
        """Ask the model to stop."""

    def discard(self) -> None:
        """Drop unread and later responses. Takes no locks, because a destructor calls it."""


class ResponseIterator:
    """Iterates over the responses of a BLS request to a decoupled model, waiting for each.

    It ends after the final response; another loop then starts from the first response again. A final flag without a
    response counts as an empty response. Threads that share an iterator share the responses. Mirrors
    python_backend/src/pb_response_iterator.cc.
    """

    __slots__ = ("__weakref__", "_again", "_done", "_responses", "_stream")

    def __init__(self, stream: ResponseStream) -> None:
        self._stream = stream
        self._responses: list[InferenceResponse] = []
        self._again: int | None = None  # position in a repeated iteration
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
        try:
            response, final = self._stream.next_response()
        except StreamEnded:
            raise StopIteration from None
        self._responses.append(response)
        if final:
            self._done = True
        return response

    def cancel(self) -> None:
        """Ask the model to stop: its sender's `is_cancelled()` returns True from now on."""
        if not self._done:
            self._stream.cancel()

    def __del__(self) -> None:
        stream = getattr(self, "_stream", None)
        if stream is not None and not self._done:
            stream.discard()
