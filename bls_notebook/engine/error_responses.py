"""Error responses for models' exceptions and for refused and cancelled requests; warnings of responses.

The record of an error (its models, frames and source lines) is attached to the TritonError as `_origin`; models never
see it. A warning reports a mistake that Triton accepts silently. A response gets each warning once, and the outermost
response also gets the warnings of callees. An error response gets none, except the stubs that answered on its path.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bls_notebook.backends.protocol import WorkerCode
from bls_notebook.pb_utils.errors import ErrorCode, TritonError
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.records.errors import ErrorRecord, InputSeen
from bls_notebook.records.models import Stubbed, without_stubs
from bls_notebook.records.visible_text import encodable, first_line, spoken, without_traceback

from .core.execution import MOST_WARNINGS, Execution, ReceivedError
from .core.model import LoadedModel
from .errors import execute_failed, without_running
from .exception_text import describe, frame_at, frame_in_process, internal_paths

_MOST_UNCHECKED = 1000  # characters of a callee's error that the model did not check


def failed_response(
    name: str,
    version: int,
    instance: str,
    error: BaseException,
    causes: list[ReceivedError] | None,
    inputs: tuple[InputSeen, ...] = (),
) -> InferenceResponse:
    """Return the error response of an `execute` that raised, in Triton's words.

    `causes` are errors of the model's own BLS requests: if this exception repeats one, the chain continues through it.
    """
    kind, text, _, reason, frames = describe(error, name, version)
    message = execute_failed(instance, reason)
    record = ErrorRecord(message, "INTERNAL", (name,), kind, frames, inputs=inputs)
    for cause in (received.record for received in reversed(causes or [])):
        if cause.message and cause.message in text:
            record = replace(
                record, chain=(name, *cause.chain), frames=frames + cause.frames, stage=cause.stage,
                inputs=cause.inputs, unchecked=cause.unchecked,
            )  # fmt: skip
            break
    else:
        if causes:
            record = replace(record, unchecked=causes[-1].record.message[:_MOST_UNCHECKED])
    return error_response(message, ErrorCode.INTERNAL, record)


def seen_inputs(request: object) -> tuple[InputSeen, ...]:
    """Return the metadata of a request's inputs; empty if the model has damaged the request."""
    try:
        return tuple(
            InputSeen(t._name, t._datatype, tuple(t._array.shape), t._device().label)
            for t in request._inputs  # type: ignore[attr-defined]
        )
    except Exception:
        return ()


def error_response(
    message: str, code: ErrorCode = ErrorCode.INTERNAL, origin: ErrorRecord | None = None
) -> InferenceResponse:
    """Return an error response; the text is cut at a NUL, as in C."""
    error = TritonError(encodable(message.partition("\0")[0]), code)
    error._origin = origin
    return InferenceResponse([], error)


def alike(response: InferenceResponse) -> InferenceResponse:
    """Return a copy of an error response for another request of the batch."""
    out = InferenceResponse([], response._error)
    out._warnings = response._warnings
    return out


def originating(response: InferenceResponse, model: LoadedModel) -> InferenceResponse:
    """Return an error response whose record begins with this model, and with its line if its code made the error."""
    error = response._error
    if error is None:
        return response
    record = error._origin
    if record is not None and record.chain[:1] == (model.name,):
        return response
    if record is None:
        record = _made_by(error, model)
    else:
        record = replace(record, chain=(model.name, *record.chain))
    if record.stage == "returned":
        model.last_error = record
    return _replaced(response, error_response(error._message, error._code, record))


def _replaced(response: InferenceResponse, out: InferenceResponse) -> InferenceResponse:
    out._parameters = response._parameters
    out._warnings = response._warnings
    return out


def _made_by(error: TritonError, model: LoadedModel) -> ErrorRecord:
    code, line = error._made
    record = ErrorRecord(error._message, error._code.name, (model.name,))
    if not code.co_filename.startswith(internal_paths):
        home = next((i.modules for i in model.instances if i.modules is not None), None)
        frame = None if home is None else frame_at(code, line, home)
        if isinstance(code, WorkerCode):
            frame = frame_in_process(model.name, model.version, code.co_filename, line, code.co_name)
        return replace(record, stage="returned", frames=() if frame is None else (frame,))
    if error._code is ErrorCode.CANCELLED:
        return replace(record, stage="cancelled")
    ran = error._message.startswith(("Failed to process the request(s) for model", "in ensemble "))
    return record if ran else replace(record, stage="refused")


def was_run(response: InferenceResponse, model: LoadedModel) -> bool:
    """Return whether an error response comes from a model's code, and not from its queue or the engine."""
    error = response._error
    record = None if error is None else error._origin or _made_by(error, model)
    return record is not None and record.stage not in ("refused", "cancelled")


def over_bls(response: InferenceResponse) -> InferenceResponse:
    """Return an error response as a BLS caller gets it: with the callee's code, or INTERNAL if it was not accepted.

    The server's backend submits the request, and reports every refusal as its own error. (Before 25.04 it reported
    every error as INTERNAL.)
    """
    error = response._error
    if error is None or error._code in (ErrorCode.INTERNAL, ErrorCode.CANCELLED):
        return response
    if error._origin.stage != "refused" or without_running(error._message) == error._message:
        return response
    return _replaced(response, error_response(error._message, ErrorCode.INTERNAL, error._origin))


def _ignored_errors(execution: Execution, returned: bool) -> Iterator[str]:
    """Yield errors that a model did not ask for before it returned, or of responses that no longer exist."""
    for received in execution.causes or ():
        if not (received.read or (received.response() and not returned)):
            record = received.record
            words = first_line(without_traceback(spoken(record.message)), _MOST_UNCHECKED)
            at = f" ({record.frames[-1].file} line {record.frames[-1].line})" if record.frames else ""
            callee = ".".join(record.chain[:1])
            yield (
                f"model '{execution.model_name}' ignored an error of '{callee}': {words}{at}; its code answered "
                "without calling has_error() or error() on the response"
            )


def cancelled_response(name: str) -> InferenceResponse:
    return error_response(
        f"Model {name} - Error when running inference: the request was cancelled", ErrorCode.CANCELLED
    )


def with_warnings(
    response: InferenceResponse,
    model: LoadedModel,
    execution: Execution | None,
    parent: Execution | None,
    returned: bool = True,
) -> InferenceResponse:
    """Return a response with its own and its execution's warnings; in strict mode, an error response with them.

    `parent` gets the warnings too, for its own responses. `returned`: `execute` returned the response and is over.
    """
    noted = () if execution is None else (*execution.warnings, *_ignored_errors(execution, returned))
    if not (response._warnings or noted):
        return response
    distinct = dict.fromkeys([*filter(None, response._warnings), *noted])
    stubs = tuple(warning for warning in distinct if warning.__class__ is Stubbed)
    warnings = () if response._error is not None else without_stubs(distinct)[:MOST_WARNINGS]
    if warnings and model.outputs.strict:
        message = f"Model {model.name} - strict: {'; '.join(warnings)}"
        response = error_response(message, origin=ErrorRecord(message, "INTERNAL", (model.name,)))
        warnings = ()
    response._warnings = stubs + warnings
    if parent is not None and response._warnings:
        parent.note_warnings(response._warnings)
    return response
