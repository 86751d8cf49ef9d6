"""Inbound requests: isolate the inputs for the receiving model, and number the request in recordings."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from sys import _getframe
from time import perf_counter_ns

from bls_notebook.devices import allocation_log, cupy_memory_hook
from bls_notebook.devices.registry import gpu_arrays
from bls_notebook.devices.transfers import nbytes
from bls_notebook.engine import call_keys
from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.error_messages import running
from bls_notebook.engine.recording import request_log as recording
from bls_notebook.engine.recording.spans import note_crossings, note_site
from bls_notebook.pb_utils.options import DEFAULT_OPTIONS, Options
from bls_notebook.pb_utils.request import InferenceRequest

from .handover import hand_over
from .outputs import Wanted
from .signature_check import reshape_all

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
    inputs = request._inputs
    if given:
        request._inputs = []
    out = _new(InferenceRequest)
    out._arrived = arrived
    try:
        out._inputs = hand_over(inputs, given, model.cpu_only)
    except (MemoryError, RuntimeError) as error:
        raise NotReceivedError(running(model.name, f"Failed to allocate memory for the inputs: {error}")) from error
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
        if options.preferred_memory is not None:
            out._requested = Wanted.of(out._requested, options.preferred_memory)
    out._answerable = None
    out._response_sender = None
    out._maker = None
    log = recording.active
    if log is None:
        out._span = 0
    else:
        out._kind = kind
        try:
            out._span = span = log.numbers.popleft()
        except IndexError:
            out._span = span = log.take()
        if span:
            tensors = out._inputs
            if model.text_in:
                size = nbytes(tensors)
            else:
                size = 0
                for tensor in tensors:
                    size += tensor._array.nbytes
            out._size = size
            if log.sites is not None:
                try:
                    if sender.model is None or kind == "stream":
                        note_site(log.sites, span, _getframe(2))
                    else:  # frames: this one, `exec` of the execution and of the request, the model's code
                        frame = _getframe(3)
                        log.sites.extend((span, frame.f_code, frame.f_lasti))  # a `SentFrom`
                        del frame
                except ValueError:  # the stack is shorter: a thread's target is `exec` itself
                    pass
            if gpu_arrays and model.cpu_only:
                note_crossings(log, span, inputs, tensors)
            if options is not DEFAULT_OPTIONS and out._requested.__class__ is Wanted:
                out._requested.span = span
            tape = log.tape
            if tape is not None:
                tape.sent(span, request, tensors, size, kind, model.received_as, sender, arrived)
    if call_keys.active:
        out._call_key = call_keys.next_key(sender, model.name)
    tracked = allocation_log.recording
    if tracked is not None:
        if cupy_memory_hook.used:
            cupy_memory_hook.follow()
        out._track = number = tracked.number()
        span = out._span and recording.span_id(out._span)
        tracked.crossed(
            inputs, out._inputs, allocation_log.IN, arrived, number, sender.track, model.who, out._options, span
        )
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
        if name != "__weakref__" and hasattr(request, name):  # some are set only during a recording
            setattr(out, name, getattr(request, name))
    request._inputs = []
    return out


def _carried(options: Options) -> Options:
    """Return the receiver's options: normalized parameters, and a new trace span."""
    if options.parameters == "{}" and options.trace is None:
        return options
    parameters = options.parameters
    if parameters != "{}":  # Triton's JSON has no spaces
        parameters = json.dumps(json.loads(parameters), separators=(",", ":"))
    return replace(options, parameters=parameters, trace=None if options.trace is None else options.trace._child())
