"""`BatchRunner`: run one `execute`, sync or async, for a batch of tickets, and deliver its responses.

The engine's half (`_start`, `end`: spans, statistics, answers) is apart from the model's half, which gives the requests
to `execute` and returns its result or its exception. Both halves of a sync batch run at the instance's home; an async
batch runs in the instance's loop.

Guarantees: when a batch has ended, every ticket has its response, or the model still holds a response sender for it;
losing the last sender ends the ticket with an error. If Triton rejects any part of the result of `execute`, no
request of the batch gets its response from it. An `execute` that raises fails every request without a response.
`Interrupted` strikes only the model's half. The scheduler owns the queues: it passes instances in and gets them back.

Only a garbage collection notices a sender lost in a reference cycle, and none starts while every thread waits. So
while a request waits long for its senders, this module collects garbage regularly, at most a twentieth of the time.
A pdb in a model leaves its trace function on the thread, and with it the variables of `execute`: it is removed, too.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import is_
from time import perf_counter_ns
from typing import Any
from weakref import WeakSet

from bls_notebook.engine import debugged_steps, observer
from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.model_counters import FOLD_AT
from bls_notebook.engine.tensors.outputs import answer, check_returned, replaced_request, rescheduled_in_vain
from bls_notebook.engine.tensors.received_inputs import rows_of
from bls_notebook.engine.waiting.clock import Recheck
from bls_notebook.engine.waiting.idle_memory import idle_memory
from bls_notebook.engine.waiting.interrupts import Interrupted, clear_interrupt, may_be_interrupted
from bls_notebook.engine.waiting.stack_frames import walk_back
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.errors import TritonModelException
from bls_notebook.pb_utils.request import TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from .calling import SendingExecution
from .error_responses import alike, cancelled_response, error_response, failed_response, seen_inputs, with_warnings
from .errors import execute_failed
from .exception_text import ReturnError, is_a
from .logs import log_if_lost, log_lost
from .ticket import SECOND_RESPONSE, Ticket

PendingAnswers = list[tuple[Ticket, InferenceResponse]]  # responses to deliver once no lock is held
SeeAgain = Callable[[Ticket], None]


def deliver(
    execution: SendingExecution, box: list[Any], given: PendingAnswers, see_again: SeeAgain | None = None
) -> list[Ticket]:
    """Put the responses that `execute` returned into `given`; return the requests to be run again.

    Only `box` may refer to the returned value: with another reference to it, the tensors would be copied.
    """
    model, tickets, instance = execution.model, execution.tickets, execution.instance
    assert model is not None
    assert instance is not None
    returned = box.pop()
    again: list[Ticket] = []
    if (  # one plain response to one request needs no check
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
            response = answer(returned, index, ticket.requested, True, model.outputs, instance.name, ticket.observed)
            if response._warnings or execution.warnings:
                response = with_warnings(response, model, execution, ticket.parent)
            given.append((ticket, response))
        index += 1  # noqa: SIM113 - on the path of every queued request; `enumerate` is slower
    return again


def _check(execution: SendingExecution, returned: Any, see_again: SeeAgain | None) -> list[Ticket]:
    """Reject results that Triton rejects, and handle unanswered requests; return as `deliver`."""
    again: list[Ticket] = []
    unanswered: list[tuple[Ticket, InferenceRequest]] = []
    tickets, who = execution.tickets, execution.instance_name
    if execution.model is not None and execution.model.decoupled:
        problem = f"Python model '{who}' is using the decoupled mode and the execute function must return None."
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
                unanswered.append((ticket, request))
        elif wanted:
            raise ReturnError(
                "Expected a None object in the execute function return list for reschduled request, "
                "found type '<class 'c_python_backend_utils.InferenceResponse'>'."
            )
        elif ticket.sent:
            raise ReturnError(SECOND_RESPONSE)
    for ticket, request in unanswered:
        request.get_response_sender()  # its destructor reports when the model drops the last sender
        leave_to_senders(ticket)
    for ticket in again:
        if see_again is None:
            ticket.finish(error_response(execute_failed(who, rescheduled_in_vain())))
        else:
            see_again(ticket)
    return again if see_again is not None else []


def failure(execution: Execution, error: BaseException) -> InferenceResponse:
    """Return the error response of an `execute` that raised."""
    model = execution.model
    assert model is not None
    if is_a(error, Interrupted) or (execution.cancelled and is_a(error, asyncio.CancelledError)):
        return cancelled_response(model.name)
    execution.server.note_failure(error)
    request = next(iter(execution.requests), None)
    inputs = () if request is None else seen_inputs(request)
    response = failed_response(model.name, model.version, execution.instance_name, error, execution.causes, inputs)
    model.last_error = response._error._origin if response._error is not None else None
    log_if_lost(execution, response)
    return with_warnings(response, model, execution, execution.parent) if execution.warnings else response


def execute(
    instance: Instance, execution: SendingExecution, box: list[Any], lock: threading.Lock
) -> InferenceResponse | None:
    """Run the model's half of a batch: put the result of `execute` into `box`, or return the response to its exception.

    The text of an exception is the model's code, too. When this returns, no interrupt is on its way to this thread.
    """
    caller_var.set(execution)
    failed: InferenceResponse | None = None
    try:
        failed = _execute(instance, execution, box)
    except BaseException as error:  # an interrupt, as the model's code ended
        failed = failure(execution, error)
    while not execution.finished:  # withdraw an interrupt that has not arrived
        try:
            with lock:
                if execution.cancelled:
                    clear_interrupt(execution.thread)
                execution.finished = True
        except Interrupted as error:
            failed = failure(execution, error)
    return failed


def _execute(instance: Instance, execution: SendingExecution, box: list[Any]) -> InferenceResponse | None:
    requests = list(execution.requests)
    try:
        if debugged_steps.attached and execution.parent is not None:
            call = partial(instance.execute, requests)
            returned = debugged_steps.stepping_in(execution.parent.thread, call)
        else:
            returned = instance.execute(requests)
        if inspect.iscoroutine(returned):
            returned = asyncio.run_coroutine_threadsafe(returned, instance.loop.loop).result()
        box.append(returned)
        _check_left(box, requests, execution)
    except BaseException as error:
        return failure(execution, error)
    return None


def _check_left(box: list[Any], requests: list[InferenceRequest], execution: SendingExecution) -> None:
    """Raise ReturnError if the model changed its list of requests: Triton counts it, and answers its elements."""
    returned, received = box[0], execution.requests
    unchanged = len(requests) == len(received) and all(map(is_, requests, received))
    if unchanged or not isinstance(returned, list):
        return
    if len(requests) not in (len(received), len(returned)):
        check_returned(box.pop(), len(requests))
    answered = [id(request) for request, response in zip(requests, returned, strict=False) if response is not None]
    if not {*answered} <= {*map(id, received)}:
        raise ReturnError(replaced_request())
    if len({*answered}) < len(answered):
        raise ReturnError(SECOND_RESPONSE)


@dataclass(frozen=True)
class Batch:
    """Requests that bypass their scheduler, as work of a home; `over` is called when they have run."""

    runner: BatchRunner
    tickets: Sequence[Ticket]
    over: Callable[[], None]

    def run(self, instance: Instance) -> None:
        self.runner.run(instance, self.tickets)
        self.over()


# Called once a batch is over, with its tickets and those that the model rescheduled.
WhenEnded = Callable[[Instance, Sequence[Ticket], list[Ticket]], None]
_get_ident = threading.get_ident


def take_request(ticket: Ticket) -> InferenceRequest | None:
    request, ticket.request = ticket.request, None
    if request is not None:
        request._answerable = ticket
        request._release_flags = 0
    return request


async def _put_in(
    box: list[Any], coroutine: Any, began: Callable[[int], None], check: Callable[[list[Any]], None]
) -> BaseException | None:
    """Await `execute` and put its result into a box; return an exception that asyncio would not catch, if any.

    As the task's result, the value would have one more reference. `began` is called when the loop starts the task, and
    `check` with the box.
    """
    began(perf_counter_ns())
    try:
        box.append(await coroutine)
        check(box)
    except (SystemExit, KeyboardInterrupt) as error:
        return error
    return None


class BatchRunner:
    """Runs batches of one model version.

    `lock`: the scheduler's lock, held to mark an execution as finished. `prepare`: returns a ticket's request as the
    model receives it, or None if it may not run any more. `see_again`: called with the ticket of a rescheduled request
    before the model releases it; without `see_again`, rescheduling is an error.
    """

    def __init__(
        self,
        model: LoadedModel,
        lock: threading.Lock,
        prepare: Callable[[Ticket], InferenceRequest | None] = take_request,
        see_again: SeeAgain | None = None,
    ) -> None:
        self._model = model
        self._lock = lock
        self._prepare = prepare
        self._see_again = see_again
        self._batching = model.spec.max_batch_size > 0

    def run(
        self, instance: Instance, tickets: Sequence[Ticket], over: Callable[[], None] | None = None
    ) -> list[Ticket]:
        """Run a batch of a sync model at its home; return the tickets to run again. Raises nothing.

        `over` is called once with the lock held when `execute` has ended, before responses are delivered.
        """
        execution: SendingExecution | None = None
        ended = [] if over is None else [over]
        try:
            execution = self._start(instance, tickets)
            if execution is None:
                return []
            context = next((ticket.context for ticket in tickets if ticket.context is not None), None)
            if context is not None:
                instance.home.route(context)
            execution.thread = _get_ident()
            execution._guard = self._lock
            self._began(execution, execution.started)
            box: list[Any] = []
            failed = execute(instance, execution, box, self._lock)
            return self.end(execution, box, failed, ended)
        except BaseException as error:  # in the engine
            self._broken(tickets, execution, error)
            return []
        finally:
            caller_var.set(None)
            if ended:
                with self._lock:
                    ended.pop()()

    def end(
        self,
        execution: SendingExecution,
        box: list[Any],
        failed: InferenceResponse | None,
        ended: list[Callable[[], None]],
    ) -> list[Ticket]:
        """Answer the requests of an `execute` that has ended: its result is in `box`, or it `failed`.

        The functions in `ended` are called first, with the lock held, and removed.
        """
        again: list[Ticket] = []
        given: PendingAnswers = []
        execution.inferred = execution.inferred or perf_counter_ns()
        try:
            try:
                if failed is None:
                    again = deliver(execution, box, given, self._see_again)
            except BaseException as problem:
                again = []
                failed = failure(execution, problem)
        finally:
            self._finish(execution, given, failed, ended)
        return again

    def _broken(self, tickets: Sequence[Ticket], execution: SendingExecution | None, error: BaseException) -> None:
        """Answer requests after an exception in the engine, such as a lack of memory."""
        if execution is None:
            self._cancel(tickets)
            return
        response = failure(execution, error)
        for ticket in tickets:
            ticket.finish(alike(response))

    def begin(self, instance: Instance, tickets: Sequence[Ticket], ended: WhenEnded) -> bool:
        """Start a batch of an async model on its loop's thread; return False if it has ended already.

        Otherwise `ended` is called when it ends.
        """
        sender = next((t.context for t in tickets if t.context is not None), None)
        execution = self._start(instance, tickets)
        if sender is None or execution is None:
            return False
        context = instance.home.context_for(sender)
        execution.thread = _get_ident()
        execution.tasks = WeakSet()
        instance.loop.executions.add(execution)
        loop = instance.loop.loop
        context.run(caller_var.set, execution)
        coroutine: Any = None
        try:
            requests = list(execution.requests)
            coroutine = context.run(instance.execute, requests)
            if not inspect.iscoroutine(coroutine):
                raise TritonModelException(
                    f"async execute returned a {type(coroutine).__name__} instead of a coroutine"
                )
            box: list[Any] = []
            checked = partial(_check_left, requests=requests, execution=execution)
            task = context.run(loop.create_task, _put_in(box, coroutine, partial(self._began, execution), checked))
        except BaseException as error:
            if inspect.iscoroutine(coroutine):
                coroutine.close()
            instance.loop.executions.discard(execution)
            self._finish(execution, [], failure(execution, error), [])
            return False
        execution.task = task
        execution.tasks.add(task)
        if any(t.interrupted for t in execution.tickets):  # while the execution had no task to cancel
            task.cancel()
        task.add_done_callback(partial(self._task_done, instance, execution, ended, box))
        return True

    def _task_done(
        self, instance: Instance, execution: SendingExecution, ended: WhenEnded, box: list[Any], task: asyncio.Task[Any]
    ) -> None:
        execution.inferred = perf_counter_ns()
        failed: InferenceResponse | None = None
        try:
            uncaught = task.result()  # an exception that asyncio does not catch
            if uncaught is not None:
                raise uncaught
        except BaseException as raised:
            failed = failure(execution, raised)
        tickets = execution.tickets
        execution.task = None
        instance.loop.executions.discard(execution)
        ended(instance, tickets, self.end(execution, box, failed, []))
        if not idle_memory.armed:
            idle_memory.arm()

    def _start(self, instance: Instance, tickets: Sequence[Ticket]) -> SendingExecution | None:
        """Make the execution of a batch; None if no request is left to run."""
        parent, wanted, observed = None, False, None
        run: list[Ticket] = []
        requests: list[InferenceRequest] = []
        for ticket in tickets:
            request = self._prepare(ticket)
            if request is None:
                ticket.finish(cancelled_response(self._model.name))
                continue
            run.append(ticket)
            requests.append(request)
            observed = observed or ticket.observed
            sender = ticket.parent
            if sender is not None and (parent is None or sender.depth > parent.depth):
                parent = sender
            wanted = wanted or (ticket.context is not None and not ticket.interrupted and not ticket.done)
        if not wanted:
            self._cancel(run)
            return None
        execution = SendingExecution(self._model.server, self._model, parent)
        execution.instance = instance
        execution.tickets = run
        execution.observed = observed
        execution.requests = requests
        execution.rows = [rows_of(r) for r in requests] if self._batching else [1] * len(run)
        instance.holder = execution
        for ticket in run:
            ticket.execution = execution
        if self._model.decoupled:
            for request in requests:
                request.get_response_sender()  # its destructor reports when the model drops the request
        execution.started = perf_counter_ns()
        return execution

    def _began(self, execution: SendingExecution, now: int) -> None:
        watching, instance = observer.active, execution.instance
        if watching is not None and instance is not None:
            watching.began([t.observed for t in execution.tickets], execution.rows, instance.place, now, instance.gpu)

    def _cancel(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            ticket.finish(cancelled_response(self._model.name))

    def _finish(
        self,
        execution: SendingExecution,
        given: PendingAnswers,
        failed: InferenceResponse | None,
        over: list[Callable[[], None]],
    ) -> None:
        """Count an execution and answer its requests."""
        tickets = execution.tickets
        with self._lock:
            execution.finished = True
            ended = perf_counter_ns()
            while over:
                over.pop()()
        inferred = execution.inferred or ended
        if len(tickets) == 1 and failed is None:
            ticket, statistics = tickets[0], self._model.statistics
            entry = (execution.rows[0], ticket.arrived, ticket.queued_at, execution.started, inferred, ended)
            statistics.alone.append(entry)
            if len(statistics.alone) >= FOLD_AT:
                statistics.fold()
        else:
            self._count_batch(execution, failed is not None, inferred, ended)
        watching, instance = observer.active, execution.instance
        if watching is not None and instance is not None:
            shared = self._model.decoupled and instance.is_async  # it could begin the next request at once
            watching.ended([t.observed for t in tickets], inferred, execution.started if shared else ended)
        execution.requests = ()
        execution.tickets = ()  # breaks a reference cycle, so that the memory is freed at once
        for ticket, response in given:
            ticket.finish(response)
        if failed is not None:
            for ticket in tickets:
                ticket.finish(alike(failed))

    def _count_batch(self, execution: SendingExecution, failed: bool, inferred: int, ended: int) -> None:
        statistics, tickets, started = self._model.statistics, execution.tickets, execution.started
        waited = whole = 0
        for ticket, rows in zip(tickets, execution.rows, strict=True):
            if ticket.context is None:  # a null request of the scheduler
                continue
            arrived, queued = ticket.arrived, ticket.queued_at
            waited, whole = max(waited, queued - arrived), whole + rows
            if failed:
                statistics.failed(ended - arrived)
            else:
                phases = (queued - arrived, inferred - started, ended - inferred)
                statistics.succeeded(rows, (ended - arrived, started - queued, *phases))
        statistics.execution(whole, waited, inferred - started, ended - inferred)


may_be_interrupted(_execute.__code__)
may_be_interrupted(_put_in.__code__)


FIRST_AFTER = 1.0


def leave_to_senders(ticket: Ticket) -> None:
    """Register a request whose `execute`, on this thread, returned before its last response was sent."""
    _leave_pdb()
    _left.add(ticket, FIRST_AFTER)


def _leave_pdb() -> None:
    """Remove what pdb traces on this thread: its breakpoints end with the `execute` that left a request unanswered."""
    bdb = sys.modules.get("bdb")
    if bdb is None:
        return
    if isinstance(getattr(sys.gettrace(), "__self__", None), bdb.Bdb):
        sys.settrace(None)
    for frame in walk_back(sys._getframe()):
        if isinstance(getattr(frame.f_trace, "__self__", None), bdb.Bdb):
            frame.f_trace = None


def _collect() -> None:
    for ticket in _left.watched():
        ticket.model.server.last_failure = None  # its traceback keeps the variables of every frame alive
    gc.collect()


_left = Recheck(_collect)
