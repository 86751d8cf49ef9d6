"""What Triton passes in silence: carried by responses, or, where the repository is strict, their error.

Guarantees: a response gets each warning once; warnings of a model that a model called come up to the
outermost response; a response that is an error already stays as it is, but for the stubs that it went
through, which every response tells and which are no error.
"""

from __future__ import annotations

from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.records.errors import ErrorRecord
from bls_notebook.records.raw_events import Stubbed, without_stubs

from .core.execution import MOST_WARNINGS, Execution
from .core.model import LoadedModel
from .failures import error_response


def with_warnings(
    response: InferenceResponse, model: LoadedModel, execution: Execution | None, parent: Execution | None
) -> InferenceResponse:
    """Return a response with the warnings of the execution that gave it; in strict mode their error.

    `response`: what the requester is about to get; `answer` put what it found into its warnings.
    `model`: that gave it.
    `execution`: where `note_warnings` kept those of other kinds.
    `parent`: who sent the request: its own responses will tell of them too.
    """
    noted = () if execution is None else execution.warnings
    if not (response._warnings or noted):
        return response
    found = dict.fromkeys([*filter(None, response._warnings), *noted])
    stubs = tuple(each for each in found if each.__class__ is Stubbed)
    warnings = () if response._error is not None else without_stubs(found)[:MOST_WARNINGS]
    if warnings and model.outputs.strict:
        message = f"Model {model.name} - strict: {'; '.join(warnings)}"
        response = error_response(message, origin=ErrorRecord(message, "INTERNAL", (model.name,)))
        warnings = ()
    response._warnings = stubs + warnings
    if parent is not None and response._warnings:
        parent.note_warnings(response._warnings)
    return response
