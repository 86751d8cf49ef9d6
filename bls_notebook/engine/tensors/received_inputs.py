"""Inbound requests: isolate the inputs for the receiving model."""

from __future__ import annotations

import sys
from dataclasses import replace
from time import perf_counter_ns

from bls_notebook.engine import observer
from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.hash_order import as_received
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.signature_check import reshape_all
from bls_notebook.engine.errors import running
from bls_notebook.engine.observer import Observed
from bls_notebook.pb_utils.options import DEFAULT_OPTIONS, Options, as_sent
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.tensor import CHANGED

from .handover import hand_over
from .outputs import Wanted, is_ignored

# In Python 3.10, the caller's frame keeps references to the arguments until the call returns.
ARGUMENTS_STAY = sys.version_info < (3, 11)
_new = InferenceRequest.__new__


class NotReceivedError(Exception):
    """The inputs of a request cannot be passed to its model; the text is the error of the response."""


def received(
    model: LoadedModel, request: InferenceRequest, given: bool, kind: str, sender: Execution
) -> InferenceRequest:
    """Return a request as the model receives it, its tensors isolated from the sender's.

    `given`: only the engine refers to the request. `kind`: see `Span`. Raises NotReceivedError if copies do not fit on
    a GPU.
    """
    arrived = perf_counter_ns()
    inputs = as_received(request._inputs)
    if given:
        request._inputs = []
    out = _new(InferenceRequest)
    out._arrived = arrived
    changed: list[str] = []
    try:
        out._inputs = hand_over(inputs, given, model.cpu_only, changed)
    except (MemoryError, RuntimeError) as error:
        raise NotReceivedError(running(model.name, f"Failed to allocate memory for the inputs: {error}")) from error
    if changed:
        words = f"model '{sender.model_name}', input '{{}}' of '{model.name}'{CHANGED}"
        sender.note_warnings([words.format(name) for name in changed])
    if model.reshapes:
        reshape_all(out._inputs, model.reshapes)
    out._requested = request._requested or model.output_names
    out._model_name = model.name
    out._model_version = model.version
    options = request._options
    if options is DEFAULT_OPTIONS:
        out._options = options
    else:
        out._options = _carried(options)
        if options.preferred_memory is not None and not is_ignored(options.preferred_memory):
            out._requested = Wanted.of(out._requested, options.preferred_memory)
    out._answerable = None
    out._response_sender = None
    out._maker = None
    watching = observer.active
    if watching is None:
        out._observed = None
    else:
        out._observed = Observed(kind)
        watching.received(model, request, inputs, out, sender)
    return out


def rows_of(request: InferenceRequest) -> int:
    """Return the rows of a request to a batching model."""
    inputs = request._inputs
    return int(inputs[0]._array.shape[0]) if inputs and inputs[0]._array.ndim else 1


def taken_over(request: InferenceRequest) -> InferenceRequest:
    """Return a copy of a request, to which only the engine refers, and empty the original.

    Callers' frames may keep the original (`ARGUMENTS_STAY`). The engine must notice when the model drops the request,
    and it notices that for the copy.
    """
    out = _new(InferenceRequest)
    for name in InferenceRequest.__slots__:
        if name != "__weakref__" and hasattr(request, name):
            setattr(out, name, getattr(request, name))
    request._inputs = []
    return out


def _carried(options: Options) -> Options:
    """Return the receiver's options: normalized parameters, and a new trace span."""
    if options.parameters == "{}" and options.trace is None:
        return options
    parameters = options.parameters
    if parameters != "{}":
        parameters = as_sent(parameters)
    return replace(options, parameters=parameters, trace=None if options.trace is None else options.trace._child())
