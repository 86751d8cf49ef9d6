"""Errors that an endpoint sends to clients, and their codes over HTTP and gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from bls_notebook.engine import without_running
from bls_notebook.pb_utils import TritonError
from bls_notebook.pb_utils.errors import ErrorCode
from bls_notebook.records import ErrorRecord

INTERNAL, NOT_FOUND, INVALID = ErrorCode.INTERNAL, ErrorCode.NOT_FOUND, ErrorCode.INVALID_ARG
UNAVAILABLE, UNSUPPORTED = ErrorCode.UNAVAILABLE, ErrorCode.UNSUPPORTED
ALREADY_EXISTS, CANCELLED = ErrorCode.ALREADY_EXISTS, ErrorCode.CANCELLED

HTTP_STATUS: Mapping[ErrorCode, int] = {INTERNAL: 500, NOT_FOUND: 404, UNAVAILABLE: 503, UNSUPPORTED: 501}
"""Triton's HTTP status for an error code; 400 for codes that are not listed."""

GRPC_STATUS: Mapping[ErrorCode, str] = {
    **{code: code.name for code in ErrorCode}, INVALID: "INVALID_ARGUMENT", UNSUPPORTED: "UNIMPLEMENTED",
}  # fmt: skip
"""The name of gRPC's status for an error code."""


class ProtocolError(Exception):
    """The error response to a request, with Triton's text where Triton has this error.

    ``origin`` records where a model raised it; ``refused``: before any model ran.
    """

    refused = False

    def __init__(self, message: str, code: ErrorCode = INVALID, origin: ErrorRecord | None = None) -> None:
        super().__init__(message)
        self.message, self.code, self.origin = message, code, origin

    @property
    def status(self) -> int:
        """The HTTP status."""
        return HTTP_STATUS.get(self.code, 400)


def refuse(message: str, code: ErrorCode = INVALID) -> NoReturn:
    """Raise a `ProtocolError`."""
    raise ProtocolError(message, code)


def of_model(error: TritonError) -> ProtocolError:
    """Return the error that a client gets for an error of a model or the engine."""
    message, origin = error.message(), error._origin
    is_passed_on = origin is not None and len(origin.chain) > 1  # by a model, whose callee refused its request
    words = message if is_passed_on else without_running(message)
    # Triton refuses a BLS request with INTERNAL, but the same request from a client with INVALID_ARG.
    refused = words is not message and error.code() == INTERNAL
    answer = ProtocolError(words, INVALID if refused else error.code(), origin)
    answer.refused = refused
    return answer
