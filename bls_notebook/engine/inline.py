"""`inline_call`: run a synchronous request to an idle model on its caller's thread.

The function is a closure for each model, because bound variables are faster than attributes. Guarantees: no request
overtakes the queue. The instance, the caller's context and its running loop are restored after any exception at any
point: Ctrl-C between two steps, the end of the stack, or an exception of the model. For this, each is taken and
given back in a single step in C.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Callable
from contextvars import copy_context
from itertools import starmap
from time import perf_counter_ns
from typing import Any

from bls_notebook.devices import allocation_log
from bls_notebook.devices.transfers import nbytes
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.request import TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from . import call_keys
from .batch_runner import failure
from .calling import SendingExecution
from .core.execution import Execution
from .core.instance import Instance
from .core.model import LoadedModel
from .core.model_counters import FOLD_AT
from .error_messages import execute_failed
from .error_responses import error_response, with_warnings
from .exception_text import ReturnError
from .logs import log_lost
from .recording import request_log as recording
from .recording import spans
from .schedulers.lifecycle import Lifecycle
from .tensors.outputs import answer, check_returned, rescheduled_in_vain, returned_none
from .tensors.received_inputs import ARGUMENTS_STAY, rows_of, taken_over
from .ticket import SECOND_RESPONSE, Ticket
from .waiting.deadlock import first_response
from .waiting.interrupts import may_be_interrupted
from .waiting.lost_senders import leave_to_senders

Call = Callable[[Execution, InferenceRequest], InferenceResponse]
_get_ident = threading.get_ident
_get_caller, _set_caller = caller_var.get, caller_var.set
_ONCE: tuple[tuple[()], ...] = ((),)


def inline_call(model: LoadedModel, scheduler: Lifecycle, wake: Callable[[], None]) -> Call:
    """Return the function that serves a synchronous request; `wake` makes an engine thread serve the queue."""
    server, outputs, statistics = model.server, model.outputs, model.statistics
    idle, queue, alone = scheduler._idle, scheduler._queue, statistics.alone
    take, give, count = idle.pop, idle.append, alone.append
    batching, text = model.spec.max_batch_size > 0, model.text_out

    def call(parent: Execution, request: InferenceRequest) -> InferenceResponse:
        if ARGUMENTS_STAY:
            request = taken_over(request)
        execution = request._answerable = SendingExecution(server, model, parent)
        held: list[Instance] = []  # at every moment, the instance is in this list or in `idle`
        before = _get_caller()
        running_loop = _get_running_loop()
        response: InferenceResponse | None = None
        guard = timer = None
        span = 0
        plain = True  # whether the request is recorded here, as one `InlineCall`
        try:
            try:
                held.extend(starmap(take, _ONCE))
            except IndexError:
                pass  # no instance is idle
            if not held or queue or scheduler._closed:
                if held:
                    idle.extend(starmap(held.pop, _ONCE))
                ticket = Ticket(model, request, parent, copy_context())
                del request  # a reference here would keep the last response sender alive
                return scheduler.call_queued(parent, ticket)
            instance = held[0]
            instance.holder = execution
            execution.instance = instance
            execution.request = request
            execution.thread = thread = _get_ident()
            if parent.thread != thread or parent.task is not None:
                guard = parent.watch(execution)
            if running_loop is not None:  # model code must not see the caller's (or Jupyter's) loop
                _set_running_loop(None)
                parent.note_blocking(model.name)
            _set_caller(execution)
            begun = request._arrived
            rows = rows_of(request) if batching else 1
            if request._span:  # a profile records it
                execution.span = span = request._span
                options, size = request._options, request._size
                if instance.gpu >= 0:
                    log, plain = recording.active, False
                    timer = log and log.measure((span,), instance.gpu)
            if call_keys.active:
                execution.call_key = getattr(request, "_call_key", None)
            if allocation_log.recording is not None:
                execution.track = getattr(request, "_track", 0)
            execution.started = started = perf_counter_ns()
            try:
                returned = instance.execute([request])
                inferred = perf_counter_ns()
                if (
                    returned.__class__ is list
                    and len(returned) == 1
                    and returned[0].__class__ is InferenceResponse
                    and execution.ticket is None
                ):
                    requested = request._requested
                    execution.request = None
                    del request
                    response = answer(returned, 0, requested, True, outputs, instance.name, execution.track)
                    if response._warnings:
                        response = with_warnings(response, model, execution, parent)
                        plain = False  # outputs may be BYTES although the configuration has none
                else:
                    plain = False
                    box = [request, returned]
                    del request, returned
                    response = _odd(execution, box)
                    inferred = execution.inferred
            except BaseException as error:
                ended = perf_counter_ns()
                statistics.execution(rows, started - begun, ended - started, 0)
                statistics.failed(ended - begun)
                try:
                    response = failure(execution, error, True)
                finally:
                    if span:
                        facts = options, size, begun, rows, ended, ended
                        spans.record_inline(execution, timer, response, *facts, failed=True)
            else:
                ended = perf_counter_ns()
                count((rows, begun, started, started, inferred, ended))
                if len(alone) >= FOLD_AT:
                    statistics.fold()
                if span:
                    log = recording.active
                    if plain and log is not None and response is not None and response._error is None:
                        outs = response._outputs
                        if text:
                            back = nbytes(outs)
                        else:
                            back = 0
                            for tensor in outs:
                                back += tensor._array.nbytes
                        # The fields of an `InlineCall`: to make one here takes 4% of a recorded call.
                        log.inline.extend((
                            span, parent.span, instance.place, options, size, begun, thread, rows, started,
                            inferred, ended, back,
                        ))  # fmt: skip
                        tape = log.tape
                        if tape is not None:
                            tape.answered(span, response, True, back, ended)
                    else:
                        facts = options, size, begun, rows, inferred, ended
                        spans.record_inline(execution, timer, response, *facts)
        finally:
            # Each of these is a single step that needs no memory; an exception in between does not skip the next.
            try:
                if held:
                    held[0].holder = None
                    give(held[0])
            finally:
                try:
                    _set_caller(before)
                finally:
                    if running_loop is not None:
                        _set_running_loop(running_loop)
            if guard is None:
                execution.finished = True
            else:
                parent.unwatch(execution, guard)
            if queue or scheduler._watch:
                wake()
        if response is None or (execution.ticket is not None and not execution.ticket.finish(response)):
            return _late_answer(execution)
        return response

    may_be_interrupted(call.__code__)
    return call


def _odd(execution: SendingExecution, box: list[Any]) -> InferenceResponse | None:
    """Return the response of an `execute` that did not return one plain response; None if a sender answers.

    `box` has the request and the returned value, and must have the only references to them.
    """
    returned, request = box.pop(), box.pop()
    model, instance = execution.model, execution.instance
    assert model is not None
    assert instance is not None
    if inspect.iscoroutine(returned):
        returned = asyncio.run_coroutine_threadsafe(returned, instance.loop.loop).result()
    if returned is None:
        ticket = execution.open_ticket(request)
        request._answerable = ticket
        request.get_response_sender()
        leave_to_senders(ticket)
        returned = [None]
    execution.inferred = perf_counter_ns()
    check_returned(returned, 1)
    answered = execution.ticket is not None and execution.ticket.done
    rescheduled = getattr(request, "_release_flags", 0) == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE
    if rescheduled and not answered and returned[0].__class__ is not InferenceResponse:
        raise ReturnError(rescheduled_in_vain())
    requested = request._requested
    execution.request = None
    del request
    if returned[0] is None:
        return None
    if execution.ticket is None:
        response = answer(returned, 0, requested, True, model.outputs, instance.name, execution.track)
        return with_warnings(response, model, execution, execution.parent)
    if answered:
        log_lost(execution.ticket, execute_failed(instance.name, SECOND_RESPONSE))
    return None


def _late_answer(execution: SendingExecution) -> InferenceResponse:
    """Wait for the response that the model's response sender sends."""
    ticket = execution.ticket
    if ticket is None:  # execute returned [None]
        response = error_response(execute_failed(execution.instance_name, returned_none("execute returned [None]")))
        if execution.span and (log := recording.active) is not None:
            log.answer(execution.span, perf_counter_ns(), response)
        return response
    return first_response(ticket)
