"""What a client is told when its request cannot be served, and how each protocol says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from bls_notebook.engine.error_messages import without_running
from bls_notebook.pb_utils import TritonError
from bls_notebook.pb_utils.errors import ErrorCode
from bls_notebook.records.errors import ErrorRecord

INTERNAL, NOT_FOUND, INVALID = ErrorCode.INTERNAL, ErrorCode.NOT_FOUND, ErrorCode.INVALID_ARG
UNAVAILABLE, UNSUPPORTED = ErrorCode.UNAVAILABLE, ErrorCode.UNSUPPORTED

HTTP_STATUS: Mapping[ErrorCode, int] = {INTERNAL: 500, NOT_FOUND: 404, UNAVAILABLE: 503, UNSUPPORTED: 501}
"""What HTTP answers for an error code, as Triton does; 400 for the others."""

GRPC_STATUS: Mapping[ErrorCode, str] = {
    ErrorCode.UNKNOWN: "UNKNOWN",
    INTERNAL: "INTERNAL",
    NOT_FOUND: "NOT_FOUND",
    INVALID: "INVALID_ARGUMENT",
    UNAVAILABLE: "UNAVAILABLE",
    UNSUPPORTED: "UNIMPLEMENTED",
    ErrorCode.ALREADY_EXISTS: "ALREADY_EXISTS",
    ErrorCode.CANCELLED: "CANCELLED",
}
"""The name of gRPC's status for an error code."""


class ProtocolError(Exception):
    """A request that is answered with an error, in Triton's words where it has some.

    ``origin`` is where a model's error came from.
    """

    def __init__(self, message: str, code: ErrorCode = INVALID, origin: ErrorRecord | None = None) -> None:
        super().__init__(message)
        self.message, self.code, self.origin = message, code, origin

    @property
    def status(self) -> int:
        """What HTTP answers."""
        return HTTP_STATUS.get(self.code, 400)


def refuse(message: str, code: ErrorCode = INVALID) -> NoReturn:
    """Answer a request with an error."""
    raise ProtocolError(message, code)


def of_model(error: TritonError) -> ProtocolError:
    """Return the error that a model's error, or the engine's, is for a client."""
    message = error.message()
    asked = without_running(message)
    # Within BLS Triton calls all that it refuses internal; to a client it says whose mistake it was.
    mistaken = asked is not message and error.code() == INTERNAL
    code = INVALID if mistaken else error.code()
    return ProtocolError(asked, code, error._origin)
