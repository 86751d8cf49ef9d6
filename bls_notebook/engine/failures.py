"""Turns what a model raised into Triton's message, and keeps where it came from for the displays.

The record of an error (its models, frames and source lines) rides on the TritonError as `_origin`;
models never see it.
"""

from __future__ import annotations

import linecache
import re
import traceback
from types import FrameType, TracebackType
from typing import Protocol

from bls_notebook.observe.records import ErrorRecord, FrameRecord
from bls_notebook.pb_utils.errors import ErrorCode, TritonError
from bls_notebook.pb_utils.response import InferenceResponse

__all__ = [
    "HOME",
    "cancelled_response",
    "describe_exception",
    "error_response",
    "exception_frames",
    "failed_response",
    "internal_paths",
    "originating",
    "over_bls",
    "public_names",
    "text_of",
]

CONTEXT_LINES = 3
MAX_FRAMES = 30
HOME = "__bls_home__"  # in the globals of a model's modules: says which model they belong to

# Frames of these files are this package's own machinery, not the model's.
internal_paths: tuple[str, ...] = (__file__.rsplit("engine", 1)[0],)


_PRIVATE = re.compile(r"[^\s'\"<>()@]*@\d+#\d+:(\w+(?::\w+)*)")


class _Running(Protocol):
    """What is told of a model that failed."""

    name: str
    version: int


def _code_frames(tb: TracebackType | None) -> list[tuple[FrameType, int]]:
    return [
        (frame, line)
        for frame, line in traceback.walk_tb(tb)
        if not frame.f_code.co_filename.startswith(internal_paths)
        and not frame.f_code.co_filename.startswith("<frozen importlib")
    ]


def public_names(text: str) -> str:
    """Return a text with the names that a model's modules have on Triton.

    Here each has a name of its own instance in `sys.modules`: ``m@1#0:helper`` is ``helper``.
    """
    return _PRIVATE.sub(lambda found: found[1].replace(":", "."), text) if "@" in text else text


def text_of(error: BaseException) -> str:
    """Return the text of an exception, also of one whose own `__str__` fails."""
    try:
        return public_names(str(error))
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        return f"<its text cannot be shown: {type(problem).__name__}>"


def describe_exception(error: BaseException) -> str:
    """Return the exception as Triton puts it: kind, text, and the frames, innermost first."""
    kind = type(error).__name__
    if kind == "ReturnError":  # Triton's own complaint, not an exception of the model
        return text_of(error)
    if isinstance(error, SyntaxError):
        return f"{kind}: {text_of(error)}"
    at = "".join(
        f"  {frame.f_code.co_filename}({line}): {frame.f_code.co_name}\n"
        for frame, line in reversed(_code_frames(error.__traceback__)[-MAX_FRAMES:])
    )
    return f"{kind}: {text_of(error) or '<EMPTY MESSAGE>'}" + (f"\n\nAt:\n{at}" if at else "")


def exception_frames(error: BaseException, model: str, version: int) -> tuple[FrameRecord, ...]:
    """Return the frames of model code and of what it called, outermost first, with lines around each.

    Frames of code that belongs to no model have no model's name.
    """
    out: list[FrameRecord] = []
    for frame, line in _code_frames(error.__traceback__)[-MAX_FRAMES:]:
        home = frame.f_globals.get(HOME)
        file = frame.f_code.co_filename
        lines = getattr(home, "sources", {}).get(file) or linecache.getlines(file)
        name, number = (home.model, home.version) if home is not None else ("", 0)
        if out and (out[-1].file, out[-1].line) == (file, line):
            continue  # a comprehension is a frame of its own in some versions of Python
        out.append(FrameRecord(name, number, file, line, frame.f_code.co_name, _around(lines, line)))
    if isinstance(error, SyntaxError) and error.filename:
        line = error.lineno or 1
        lines = linecache.getlines(error.filename)
        out.append(FrameRecord(model, version, error.filename, line, "", _around(lines, line)))
    return tuple(out)


def _around(lines: list[str], line: int) -> tuple[tuple[int, str], ...]:
    first = max(1, line - CONTEXT_LINES)
    return tuple(
        (number, lines[number - 1].rstrip("\n"))
        for number in range(first, min(line + CONTEXT_LINES, len(lines)) + 1)
    )


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
    text = text_of(error)
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
