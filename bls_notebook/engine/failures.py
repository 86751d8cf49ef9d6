"""Makes a response of what a model raised (`description.py`), and keeps where it came from for the displays.

The record of an error (its models, frames and source lines) rides on the TritonError as `_origin`;
models never see it.
"""

from __future__ import annotations

from bls_notebook.observe.records.errors import ErrorRecord
from bls_notebook.observe.visible import encodable
from bls_notebook.pb_utils.errors import ErrorCode, TritonError
from bls_notebook.pb_utils.response import InferenceResponse

from .description import describe
from .messages import execute_failed

__all__ = ["cancelled_response", "error_response", "failed_response", "originating", "over_bls"]


def failed_response(
    name: str, version: int, instance: str, error: BaseException, causes: list[ErrorRecord] | None
) -> InferenceResponse:
    """Return the error response of an `execute` that raised, in Triton's words.

    Parameters
    ----------
    name, version : str, int
        Of the model.
    instance : str
        Name of the instance that it ran on.
    causes : list of ErrorRecord
        Errors that the model got from its own BLS requests; where this exception repeats one of
        them, the chain goes on through it.
    """
    kind, text, _, told, frames = describe(error, name, version)
    message = execute_failed(instance, told)
    chain: tuple[str, ...] = (name,)
    for cause in reversed(causes or []):
        if cause.message and cause.message in text:
            chain, frames = chain + cause.chain, frames + cause.frames
            break
    return error_response(message, ErrorCode.INTERNAL, ErrorRecord(message, "INTERNAL", chain, kind, frames))


def error_response(
    message: str, code: ErrorCode = ErrorCode.INTERNAL, origin: ErrorRecord | None = None
) -> InferenceResponse:
    """Return a response with an error."""
    error = TritonError(encodable(message), code)
    error._origin = origin
    return InferenceResponse([], error)


def originating(response: InferenceResponse, model: str) -> InferenceResponse:
    """Return an error response that says which model it came from; one that does stays as it is."""
    error = response._error
    if error is None or error._origin is not None:
        return response
    record = ErrorRecord(error._message, error._code.name, (model,))
    out = error_response(error._message, error._code, record)
    out._parameters = response._parameters
    return out


def over_bls(response: InferenceResponse) -> InferenceResponse:
    """Return an error response as a BLS caller gets it: INTERNAL, as on the server, unless cancelled."""
    error = response._error
    if error is None or error._code in (ErrorCode.INTERNAL, ErrorCode.CANCELLED):
        return response
    out = error_response(error._message, ErrorCode.INTERNAL, error._origin)
    out._parameters = response._parameters
    return out


def cancelled_response(name: str) -> InferenceResponse:
    """Return the answer to a request that was cancelled before it was answered."""
    return error_response(
        f"Model {name} - Error when running inference: the request was cancelled",
        ErrorCode.CANCELLED,
    )
