"""What `execute` has returned, or raised, made the answers of its requests.

Guarantees: what was returned is taken for all requests of a batch or, where Triton refuses any of it, for
none; a request that it does not answer is left to its senders, and it is noticed when the last of them goes.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from bls_notebook.pb_utils.request import TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from .calling import SendingExecution
from .core.execution import Execution
from .description import ReturnError, is_a
from .failures import cancelled_response, error_response, failed_response, seen_inputs
from .logs import log_if_lost, log_lost
from .messages import execute_failed
from .tensors.outputs import answer, check_returned, rescheduled_in_vain
from .ticket import SECOND_RESPONSE, Ticket
from .waiting.ctrl_c import pressed
from .waiting.interrupt import Interrupted
from .waiting.lost_senders import leave_to_senders
from .warnings import with_warnings

Answers = list[tuple[Ticket, InferenceResponse]]  # that are given once no lock is held
SeeAgain = Callable[[Ticket], None]


def deliver(
    execution: SendingExecution, box: list[Any], given: Answers, see_again: SeeAgain | None = None
) -> list[Ticket]:
    """Put what `execute` has returned into `given`; the requests that the model wants to see again.

    `box` holds what was returned, and nobody else does: what else held it would mean copies. So would
    the requests.
    """
    model, tickets, instance = execution.model, execution.tickets, execution.instance
    assert model is not None
    assert instance is not None
    returned = box.pop()
    if returned.__class__ is not list and inspect.iscoroutine(returned):
        returned = asyncio.run_coroutine_threadsafe(returned, instance.loop.loop).result()
    execution.inferred = execution.inferred or perf_counter_ns()
    again: list[Ticket] = []
    if (  # otherwise it is the plain case: there is nothing to be found
        model.decoupled
        or returned.__class__ is not list
        or len(returned) != 1
        or returned[0].__class__ is not InferenceResponse
        or len(tickets) != 1
        or tickets[0]._sent
        or getattr(execution.requests[0], "_release_flags", 0)
    ):
        again = _check(execution, returned, see_again)
        if model.decoupled or returned is None:
            tickets = ()
    execution.requests = ()
    index = 0
    for ticket in tickets:
        if returned[index] is not None:
            response = answer(
                returned, index, ticket.requested, True, model.outputs, instance.name, ticket.track
            )
            if response._warnings or execution.warnings:
                response = with_warnings(response, model, execution, ticket.parent)
            given.append((ticket, response))
        index += 1  # noqa: SIM113 - on the path of every queued request, where `enumerate` takes longer
    return again


def _check(execution: SendingExecution, returned: Any, see_again: SeeAgain | None) -> list[Ticket]:
    """Refuse what Triton refuses, and see to the requests that are not answered; as `deliver`."""
    again: list[Ticket] = []
    left: list[tuple[Ticket, InferenceRequest]] = []
    tickets, who = execution.tickets, execution.instance_name
    if execution.model is not None and execution.model.decoupled:
        problem = (
            f"Python model '{who}' is using the decoupled mode and the execute function must return None."
        )
        if returned is not None:
            if not all(t.done for t in tickets):
                raise ReturnError(problem)
            log_lost(tickets[0], execute_failed(who, problem))
        returned = None
    if returned is not None:
        check_returned(returned, len(tickets))
    for index, (ticket, request) in enumerate(zip(tickets, execution.requests, strict=True)):
        wanted = getattr(request, "_release_flags", 0) == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE
        if returned is None or returned[index] is None:
            if not ticket.done and wanted:
                again.append(ticket)
            elif not ticket.done:
                left.append((ticket, request))
        elif wanted:
            raise ReturnError(
                "Expected a None object in the execute function return list for reschduled request, "
                "found type '<class 'c_python_backend_utils.InferenceResponse'>'."
            )
        elif ticket.sent:
            raise ReturnError(SECOND_RESPONSE)
    for ticket, request in left:
        request.get_response_sender()  # so it is noticed when its last sender is dropped
        leave_to_senders(ticket)
    for ticket in again:
        if see_again is None:
            ticket.finish(error_response(execute_failed(who, rescheduled_in_vain())))
        else:
            see_again(ticket)
    return again if see_again is not None else []


def failure(execution: Execution, error: BaseException, inline: bool = False) -> InferenceResponse:
    """Return the response of an `execute` that raised; Ctrl-C goes on to the notebook.

    An interrupt of a worker thread is for the execution at the bottom of that thread: one that runs
    `inline` above it hands it on.
    """
    model = execution.model
    assert model is not None
    if pressed(error):
        execution.interrupt()
        raise error
    if inline and is_a(error, Interrupted):
        raise error
    if is_a(error, Interrupted, asyncio.CancelledError):
        return cancelled_response(model.name)
    execution.server.note_failure(error)
    request = execution.request or next(iter(execution.requests), None)
    inputs = () if request is None else seen_inputs(request)
    who = execution.instance_name
    response = failed_response(model.name, model.version, who, error, execution.causes, inputs)
    model.last_error = response._error._origin if response._error is not None else None
    log_if_lost(execution, response)
    return with_warnings(response, model, execution, execution.parent) if execution.warnings else response
