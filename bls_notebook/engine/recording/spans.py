"""Recording of spans for profiles, off the hot path: queued, batched, failed and streamed requests.

Every function does nothing while no profile is on; see `engine.recording.request_log`. Tickets are `Any` here, because
`Ticket` imports this module. A request from a bare thread carries no context. `span_of_frame` finds its parent from
the variables of the thread's functions (a request or a response sender of the model), or else from the instance whose
code runs, if it serves a single request.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter_ns
from types import FrameType
from typing import Any

import numpy as np

from bls_notebook.devices.transfers import nbytes
from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.pb_utils.options import Options
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse, InferenceResponseSender
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.records.recorded_models import ModelSeen

from . import request_log as recording
from .request_log import Begun, Crossed, Log, Ran, RecordedInstance, SentFrom

_DEEP = 60  # frames to search for code outside libraries
_INSTALLED = f"{os.sep}site-packages{os.sep}"
_LIBRARIES = (str(Path(__file__).resolve().parents[2]) + os.sep, str(Path(os.__file__).parent) + os.sep, "<frozen")
_own: dict[str, bool] = {}  # by file: False for a library


def note_crossings(log: Log, span: int, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
    """Record how many of a request's tensors changed their device on the way to the model."""
    moved = sum(
        isinstance(a._array, np.ndarray) is not isinstance(b._array, np.ndarray)
        for a, b in zip(before, after, strict=True)
    )
    if moved:
        log.crossed.extend(Crossed(span, moved))


def note_site(sites: list[Any], span: int, frame: FrameType | None) -> None:
    """Record the code that sends a request: the innermost frame outside libraries."""
    sender = _outside(frame)
    if sender is not None:
        sites.extend(SentFrom(span, sender.f_code, sender.f_lasti))


def _outside(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame outside libraries: of a model, a notebook or a script."""
    for _ in range(_DEEP):
        if frame is None:
            break
        file = frame.f_code.co_filename
        own = _own.get(file)
        if own is None:
            own = _own[file] = not file.startswith(_LIBRARIES) and _INSTALLED not in file
        if own:
            return frame
        frame = frame.f_back
    return None


def record_refused(sender: Execution, request: InferenceRequest, kind: str, response: InferenceResponse) -> None:
    """Record a request that was refused before it was sent."""
    log = recording.active
    number = 0 if log is None else log.take()
    if log is not None and number:
        model, now = sender.server.find(request._model_name, request._model_version), perf_counter_ns()
        seen = ModelSeen(request._model_name, 0) if model is None else model.seen
        log.begun.extend(Begun(number, sender.span, seen, kind, request._options, 0, now, now))
        if log.tape is not None:
            tensors, size = request._inputs, nbytes(request._inputs)
            log.tape.sent(number, request, tensors, size, kind, (model and model.seen, {}), sender, now)
        log.answer(number, now, response)


def record_begun(
    log: Log, span: int, parent: Execution | None, model: LoadedModel, request: InferenceRequest, sent: int, queued: int
) -> None:
    """Record that a request was sent, and queued (0: use the time of its start)."""
    sender, options = 0 if parent is None else parent.span, request._options
    log.begun.extend(Begun(span, sender, model.seen, request._kind, options, request._size, sent, queued))


def record_at_once(
    model: LoadedModel, parent: Execution, request: InferenceRequest, response: InferenceResponse, cached: bool = False
) -> None:
    """Record a request that is answered without an instance."""
    log = recording.active
    if log is None or not request._span:
        return
    now = perf_counter_ns()
    record_begun(log, request._span, parent, model, request, request._arrived, now)
    log.answer(request._span, now, response)
    if cached:
        log.cached.append(request._span)


def record_sent(ticket: Any, request: InferenceRequest) -> None:
    log = recording.active
    if log is not None:
        record_begun(log, ticket.span, ticket.parent, ticket.model, request, ticket.arrived, ticket.queued_at)


def record_response(ticket: Any, response: InferenceResponse, final: bool) -> None:
    """Record a response; the ticket's lock is held."""
    log = recording.active
    if log is None:
        return
    now = perf_counter_ns()
    size = nbytes(response._outputs)
    if log.tape is not None:
        log.tape.answered(ticket.span, response, final, size, now)
    decoupled = ticket.model.decoupled
    empty = decoupled and final and not response._outputs
    if response._error is None:
        ticket.sent_bytes += size
    if decoupled:
        log.mark(ticket.span, now, "final" if final else "response")
    if final:
        count = ticket._sent - empty if decoupled else response._error is None
        given_up = ticket.cancelled and response._error is None
        log.end(ticket.span, now, None if given_up else response, max(0, int(count)), ticket.sent_bytes)


def record_inline(
    execution: Execution,
    timer: Any,
    response: InferenceResponse | None,
    options: Options,
    bytes_in: int,
    sent: int,
    rows: int,
    inferred: int,
    ended: int,
    failed: bool = False,
) -> None:
    """Record a request that ran on its caller's thread. (`inline_call` records the plain case itself.)

    A `failed` request without a response was interrupted by an exception, which its caller gets.
    """
    if timer is not None:
        timer.end()
    log, instance, parent = recording.active, execution.instance, execution.parent
    if log is None or instance is None or parent is None:
        return
    span, started = execution.span, execution.started
    kind = "ensemble" if parent.combined else "sync"
    log.begun.extend(Begun(span, parent.span, instance.place.model, kind, options, bytes_in, sent, started))
    log.place(span, instance.place, rows, started)
    log.ran.extend(Ran(span, inferred, ended))
    if execution.ticket is None and (failed or response is not None):
        log.answer(span, ended, response)


def record_batch(execution: Execution, now: int = 0) -> None:
    log, instance = recording.active, execution.instance
    if log is None or instance is None:
        return
    now = now or perf_counter_ns()
    recorded = [p for p in zip(execution.tickets, execution.rows, strict=True) if p[0].span]
    batch = execution.span if len(recorded) > 1 else 0
    for ticket, rows in recorded:
        log.place(ticket.span, instance.place, rows, now, batch)


def record_batch_over(execution: Execution, inferred: int, ended: int) -> None:
    """Record that `execute` of a batch is over."""
    log, instance, model = recording.active, execution.instance, execution.model
    if log is None or instance is None or model is None:
        return
    if instance.gpu >= 0 and execution.timer is not None:
        execution.timer.end()
    shared = model.decoupled and instance.is_async  # the instance could begin the next request at once
    for ticket in execution.tickets:
        if ticket.span:
            log.ran.extend(Ran(ticket.span, inferred, execution.started if shared else ended))


def record_ensemble(execution: Execution, request: InferenceRequest, arrived: int, waits: bool) -> None:
    """Record that an ensemble begins; `waits`: its caller waits on this thread, so its start is not recorded yet."""
    log, model = recording.active, execution.model
    if log is None or model is None:
        return
    span, now = execution.span, execution.started
    if waits:
        record_begun(log, span, execution.parent, model, request, arrived, now)
    log.place(span, RecordedInstance(model.seen, model.name, "cpu", None), 1, now)


def record_ensemble_over(execution: Execution, response: InferenceResponse, waits: bool) -> None:
    log, now = recording.active, perf_counter_ns()
    if log is not None:
        log.ran.extend(Ran(execution.span, now, now))
        if waits:
            log.answer(execution.span, now, response)


def span_of_frame(frame: FrameType | None, instance: Instance | None) -> int:
    """Return the profile's number of the request that a model's code processes, by frame or instance; 0 for none."""
    if recording.active is None:
        return 0
    while frame is not None:
        for value in _values(frame):
            if span := _span_of(value):
                return span
        frame = frame.f_back
    return 0 if instance is None else getattr(instance.only_execution, "span", 0)


def _values(frame: FrameType) -> list[Any]:
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return []  # a module or a class
    values = list(frame.f_locals.values())
    if sys.version_info < (3, 13):
        frame.f_locals.clear()  # the frame keeps this copy, which would keep arrays alive
    return values


def _span_of(value: Any) -> int:
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if isinstance(value, InferenceRequest):
        return getattr(value, "_span", 0)
    return getattr(value._request, "span", 0) if isinstance(value, InferenceResponseSender) else 0
