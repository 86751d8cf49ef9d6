"""`home_call`: the short way of a synchronous request to an idle instance: run at its home while its caller waits.

Most BLS calls are of this kind. So it does in few steps what a scheduler and `BatchRunner` do for any request, and
leaves the unusual to them, such as a response sender or an exception.

Guarantees: no request overtakes the queue. The instance is given back before the caller wakes, so that the caller's
next request finds it idle. The request has been given to an idle instance, so its wait needs no search for a deadlock.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from time import perf_counter_ns
from typing import Any

from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from . import observer
from .batch_runner import BatchRunner, execute, failure
from .calling import SendingExecution
from .core.execution import Execution
from .core.instance import Instance
from .core.model import LoadedModel
from .core.model_counters import FOLD_AT
from .deadlocks import reports
from .error_responses import with_warnings
from .response_stream import first_response
from .schedulers.lifecycle import Lifecycle
from .tensors.outputs import answer
from .tensors.received_inputs import ARGUMENTS_STAY, rows_of, taken_over
from .ticket import Ticket
from .waiting.busy_code import name_line, running_line
from .waiting.parker import Parker, blocked

_get_ident = _thread.get_ident
_set_caller = caller_var.set

HomeCall = Callable[[Execution, InferenceRequest], InferenceResponse]
RunTicket = Callable[[Instance, Ticket], bool]


def home_call(model: LoadedModel, scheduler: Lifecycle, runner: BatchRunner) -> tuple[HomeCall, RunTicket]:
    """Return the function that sends a request and waits, and the one that runs it at home.

    The second returns whether it ran the request; else the scheduler has to. Both are closures for each model, because
    bound variables are faster than attributes.
    """
    server, outputs, statistics = model.server, model.outputs, model.statistics
    queue, alone = scheduler._queue, statistics.alone
    take, free, count = scheduler._idle.pop, scheduler._free, alone.append
    batching, lock = model.spec.max_batch_size > 0, scheduler._lock

    def call(parent: Execution, request: InferenceRequest) -> InferenceResponse:
        if ARGUMENTS_STAY:
            request = taken_over(request)
        ticket = Ticket(model, request, parent, copy_context())
        del request  # a reference here would keep the last response sender alive
        if queue or scheduler._closed:
            return scheduler.call_queued(parent, ticket)
        thread = _get_ident()  # before the instance is taken, because it needs memory
        try:
            instance = take()
        except IndexError:
            return scheduler.call_queued(parent, ticket)
        try:
            if parent.tasks is not None:
                parent.note_blocking(model.name)
            instance.holder = ticket
            ticket.outside = True
            parker = Parker()
            ticket._parkers = [parker]
            parent.children.add(ticket)
            blocked[thread] = ticket
            instance.home.post_and_wait(ticket, parker, reports.REPORT_AFTER)
        except BaseException as error:
            if ticket.posted:
                name_line(error, running_line(ticket))
            else:  # at the end of the stack, or of the memory
                free(instance)
            ticket.interrupt()
            raise
        finally:
            blocked.pop(thread, None)
        only = ticket._only
        return only.pop() if only and not ticket.held else first_response(ticket)

    def run(instance: Instance, ticket: Ticket) -> bool:
        request, parent = ticket.request, ticket.parent
        if request is None or parent is None or ticket.interrupted or ticket.done:
            return False
        execution: SendingExecution | None = None
        box: list[Any] = []
        try:
            ticket.request = None
            request._answerable = ticket
            request._release_flags = 0
            sender = parent.instance
            if sender is not None and parent.task is None and sender._home is not None:
                instance.home.follow(sender._home)
            elif ticket.context is not None:
                instance.home.route(ticket.context)
            execution = SendingExecution(server, model, parent)
            execution.instance = instance
            execution.tickets = (ticket,)
            execution.observed = observed = ticket.observed
            execution.requests = requests = [request]
            execution.rows = rows = [rows_of(request) if batching else 1]
            del request
            execution.thread = _get_ident()
            execution._guard = lock
            instance.holder = ticket.execution = execution
            execution.started = started = perf_counter_ns()
            if observed is not None and observed.span and (watching := observer.active) is not None:
                watching.began((observed,), rows, instance.place, started, instance.gpu)
            failed = execute(instance, execution, box, lock)
            if (
                failed is not None
                or box[0].__class__ is not list
                or len(box[0]) != 1
                or box[0][0].__class__ is not InferenceResponse
                or ticket._sent
                or requests[0]._release_flags
            ):
                del requests
                runner.end(execution, box, failed, [partial(free, instance)])
                _set_caller(None)
                return True
            execution.inferred = inferred = perf_counter_ns()
            requests = execution.requests = []
            returned = box.pop()
            response = answer(returned, 0, ticket.requested, True, outputs, instance.name, observed)
            if response._warnings or execution.warnings:
                response = with_warnings(response, model, execution, parent)
            ended = perf_counter_ns()
            if observed is not None and observed.span and (watching := observer.active) is not None:
                watching.ended((observed,), inferred, ended)
            count((rows[0], ticket.arrived, ticket.queued_at, started, inferred, ended))
            if len(alone) >= FOLD_AT:
                statistics.fold()
            execution.tickets = ()
            _set_caller(None)
            if queue or scheduler._watch:
                with lock:
                    free(instance)
            else:
                free(instance)
            ticket.finish_alone(response)
        except BaseException as problem:  # of a response whose class is the model's, or a lack of memory
            if instance.holder is ticket or (execution is not None and instance.holder is execution):
                with lock:
                    free(instance)
            _set_caller(None)
            ticket.finish(failure(execution or SendingExecution(server, model, parent), problem))
        return True

    return call, run
