"""Turns what a model raised into Triton's message, and keeps where it came from for the displays.

The record of an error (its models, frames and source lines) rides on the TritonError as `_origin`;
models never see it.
"""

from __future__ import annotations

import linecache
import traceback
from types import TracebackType
from typing import Protocol

from bls_notebook.observe.records import ErrorRecord, FrameRecord
from bls_notebook.pb_utils.errors import ErrorCode, TritonError
from bls_notebook.pb_utils.response import InferenceResponse

__all__ = [
    "cancelled_response",
    "describe_exception",
    "error_response",
    "exception_frames",
    "failed_response",
    "internal_paths",
]

CONTEXT_LINES = 3
MAX_FRAMES = 30

# Frames of these files are this package's own machinery, not the model's.
internal_paths: tuple[str, ...] = (__file__.rsplit("engine", 1)[0],)


class _Running(Protocol):
    """What is told of a model that failed."""

    name: str
    version: int


def _code_frames(tb: TracebackType | None) -> list[tuple[str, int, str]]:
    return [
        (frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(tb)
        if not frame.f_code.co_filename.startswith(internal_paths)
        and not frame.f_code.co_filename.startswith("<frozen importlib")
    ]


def describe_exception(error: BaseException) -> str:
    """Return the exception as Triton puts it: kind, text, and the frames, innermost first."""
    kind = type(error).__name__
    if kind == "ReturnError":  # Triton's own complaint, not an exception of the model
        return str(error)
    if isinstance(error, SyntaxError):
        return f"{kind}: {error}"
    at = "".join(
        f"  {file}({line}): {function}\n"
        for file, line, function in reversed(_code_frames(error.__traceback__))
    )
    return f"{kind}: {error}" + (f"\n\nAt:\n{at}" if at else "")


def exception_frames(error: BaseException, model: str, version: int) -> tuple[FrameRecord, ...]:
    """Return the frames of the model's own code, outermost first, with the lines around each."""
    frames = _code_frames(error.__traceback__)
    if isinstance(error, SyntaxError) and error.filename:
        frames = [(error.filename, error.lineno or 1, "")]
    out = []
    for file, line, function in frames[-MAX_FRAMES:]:
        first = max(1, line - CONTEXT_LINES)
        source = []
        for number in range(first, line + CONTEXT_LINES + 1):
            text = linecache.getline(file, number)
            if text:
                source.append((number, text.rstrip("\n")))
        out.append(FrameRecord(model, version, file, line, function, tuple(source)))
    return tuple(out)


def failed_response(
    model: _Running, message: str, error: BaseException, causes: list[ErrorRecord] | None
) -> InferenceResponse:
    """Return the error response of an `execute` that raised.

    Parameters
    ----------
    message : str
        The whole message, in Triton's words.
    causes : list of ErrorRecord
        Errors that the model got from its own BLS requests; where this exception repeats one of
        them, the chain goes on through it.
    """
    chain: tuple[str, ...] = (model.name,)
    frames = exception_frames(error, model.name, model.version)
    text = str(error)
    for cause in reversed(causes or []):
        if cause.message and cause.message in text:
            chain, frames = chain + cause.chain, frames + cause.frames
            break
    record = ErrorRecord(message, "INTERNAL", chain, type(error).__name__, frames)
    return error_response(message, ErrorCode.INTERNAL, record)


def error_response(
    message: str, code: ErrorCode = ErrorCode.INTERNAL, origin: ErrorRecord | None = None
) -> InferenceResponse:
    """Return a response with an error."""
    error = TritonError(message, code)
    error._origin = origin
    return InferenceResponse([], error)


def cancelled_response(name: str) -> InferenceResponse:
    """Return the answer to a request that was cancelled before it was answered."""
    return error_response(
        f"Model {name} - Error when running inference: the request was cancelled",
        ErrorCode.CANCELLED,
    )
