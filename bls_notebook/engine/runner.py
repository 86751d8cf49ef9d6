"""`BatchRunner`: one `execute` call that serves a batch of tickets, sync or async.

Guarantees: every ticket of a batch is answered, or its model still holds the means to (a sender), once
the batch has ended; what `execute` returned is taken for all or, where Triton refuses any of it, for none; an
`execute` that fails fails every request that was not answered before. A batch is run in the context of
its first ticket. Nothing here knows of queues: the scheduler hands over instances and gets them back.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any
from weakref import WeakSet

from bls_notebook.observe import recording
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.errors import TritonModelException
from bls_notebook.pb_utils.request import TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from .calling import SendingExecution
from .core.execution import Execution
from .core.instance import Instance
from .core.model import LoadedModel
from .description import ReturnError, is_a
from .failures import cancelled_response, error_response, failed_response
from .lost import log_if_lost, log_lost
from .messages import execute_failed
from .recording.batches import record_batch, record_batch_over, record_inferred
from .tensors.inbound import rows_of
from .tensors.outputs import answer, check_returned, rescheduled_in_vain
from .ticket import SECOND_RESPONSE, Ticket
from .waiting.ctrl_c import may_be_interrupted, pressed
from .waiting.interrupt import Interrupted, clear_interrupt
from .waiting.lost_senders import leave_to_senders
from .warnings import with_warnings

__all__ = ["BatchRunner", "Ended", "failure", "take_request"]

# Called once a batch is over, with the tickets whose requests the model wants to see again.
Ended = Callable[[Instance, Sequence[Ticket], list[Ticket]], None]
_get_ident = threading.get_ident


def take_request(ticket: Ticket) -> InferenceRequest | None:
    """Return a ticket's request, to be run once."""
    request, ticket.request = ticket.request, None
    if request is not None:
        request._answerable = ticket
    return request


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
    response = failed_response(model, execution.instance_name, error, execution.causes)
    log_if_lost(execution, response)
    return response


async def _put_in(box: list[Any], coroutine: Any, began: Callable[[], None] | None) -> BaseException | None:
    """Await what `execute` returns, and keep it where it can be taken from: a task holds its result.

    What would end the loop with the task (`sys.exit`) is returned instead. `began` is called first: another
    coroutine may have kept the loop until now.
    """
    if began is not None:
        began()
    try:
        box.append(await coroutine)
    except (SystemExit, KeyboardInterrupt) as error:
        return error
    return None


class BatchRunner:
    """Runs batches of one model version.

    Parameters
    ----------
    model : LoadedModel
    lock : threading.Lock
        The scheduler's, under which executions are counted.
    prepare : callable
        Gives the request of a ticket as the model is to receive it, with the one who takes its answers;
        None where it may not be run any more.
    see_again : callable, optional
        Called before the request of a ticket is let go that the model wants to see again. Where there
        is none, models ask for that in vain.
    """

    def __init__(
        self,
        model: LoadedModel,
        lock: threading.Lock,
        prepare: Callable[[Ticket], InferenceRequest | None] = take_request,
        see_again: Callable[[Ticket], None] | None = None,
    ) -> None:
        self._model = model
        self._lock = lock
        self._prepare = prepare
        self._see_again = see_again

    # -- sync ----------------------------------------------------------------------------------------

    def run(self, instance: Instance, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Run a batch of a sync model on this worker thread.

        Returns
        -------
        list of Ticket
            Those whose requests the model wants to see again.
        """
        context = next((t.context for t in tickets if t.context is not None), None)
        try:
            if context is None:
                return self._run(instance, tickets)
            return context.run(self._run, instance, tickets)
        except Interrupted:  # arrived after the model was left
            self._cancel(tickets)
            return []

    def deliver(self, execution: SendingExecution, box: list[Any]) -> list[Ticket]:
        """Answer the requests of an `execute` that has returned; those that the model wants to see again.

        `box` holds what was returned, and nobody else does: what else held it would mean copies.
        """
        model = self._model
        if inspect.iscoroutine(box[0]):
            assert execution.instance is not None
            loop = execution.instance.loop.loop
            box.append(asyncio.run_coroutine_threadsafe(box.pop(), loop).result())
        execution.inferred = execution.inferred or perf_counter_ns()
        if execution.span:
            record_inferred(execution)
        returned = box.pop()
        again = self._check(execution, returned)
        if returned is not None and not model.decoupled:
            who, checks = execution.instance_name, model.outputs
            for index, ticket in enumerate(execution.tickets):
                if returned[index] is not None:
                    response = answer(returned, index, ticket.requested, True, checks, who, ticket.track)
                    ticket.finish(with_warnings(response, model, execution, ticket.parent))
        for ticket, request in zip(execution.tickets, execution.requests, strict=True):
            if not ticket.done and ticket not in again:  # so it is noticed when its last sender is dropped
                request.get_response_sender()
                leave_to_senders(ticket)
        return again

    def run_inline(self, instance: Instance, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Run a batch on the thread of the one who asked for it; as `run`.

        Raises
        ------
        KeyboardInterrupt
            Ctrl-C; the requests have been answered then.
        """
        running_loop = _get_running_loop()
        if running_loop is not None:  # model code must not see the caller's (or Jupyter's) loop
            _set_running_loop(None)
        try:
            return self._run(instance, tickets, True)
        finally:
            if running_loop is not None:
                _set_running_loop(running_loop)

    def _run(self, instance: Instance, tickets: Sequence[Ticket], inline: bool = False) -> list[Ticket]:
        execution = self._start(instance, tickets)
        if execution is None:
            return []
        execution.thread = thread = _get_ident()
        parent = execution.parent
        # Inline, it is stopped with its parent, unless that is somewhere else.
        own = not inline or parent is None or parent.thread != thread or parent.task is not None
        guard = execution.interruptible() if own else threading.Lock()
        before = caller_var.get()
        caller_var.set(execution)
        failed: InferenceResponse | None = None
        again: list[Ticket] = []
        try:
            again = self.deliver(execution, [instance.execute(list(execution.requests))])
        except BaseException as error:
            again = []
            failed = cancelled_response(self._model.name)  # where the next line raises: Ctrl-C
            failed = failure(execution, error, inline)
        finally:
            with guard:
                execution.finished = True
            if own and execution.cancelled:
                clear_interrupt(execution.thread)
            caller_var.set(before)
            self._finish(execution, failed)
        return again

    # -- async ---------------------------------------------------------------------------------------

    def begin(self, instance: Instance, tickets: Sequence[Ticket], ended: Ended) -> bool:
        """Start a batch of an async model; on the thread of the instance's loop.

        Returns
        -------
        bool
            Whether it is under way: then `ended` is called once it is over, on the same thread.
            Otherwise it is over already, and `ended` is not called.
        """
        context = next((t.context for t in tickets if t.context is not None), None)
        execution = None if context is None else self._start(instance, tickets, placed=False)
        if context is None or execution is None:
            self._cancel(tickets)
            return False
        execution.thread = _get_ident()
        execution.tasks = WeakSet()
        instance.loop.executions.add(execution)
        loop = instance.loop.loop
        context.run(caller_var.set, execution)
        coroutine: Any = None
        try:
            coroutine = context.run(instance.execute, list(execution.requests))
            if not inspect.iscoroutine(coroutine):
                raise TritonModelException(
                    f"async execute returned a {type(coroutine).__name__} instead of a coroutine"
                )
            box: list[Any] = []
            began = partial(record_batch, execution) if execution.span else None
            task = context.run(loop.create_task, _put_in(box, coroutine, began))
        except BaseException as error:
            if inspect.iscoroutine(coroutine):
                coroutine.close()
            instance.loop.executions.discard(execution)
            execution.finished = True
            self._finish(execution, failure(execution, error))
            return False
        execution.task = task
        execution.tasks.add(task)
        if any(t.interrupted for t in execution.tickets):  # meanwhile, by somebody who saw no task yet
            task.cancel()
        task.add_done_callback(partial(self._task_done, instance, execution, ended, box))
        return True

    def _task_done(
        self,
        instance: Instance,
        execution: SendingExecution,
        ended: Ended,
        box: list[Any],
        task: asyncio.Task[Any],
    ) -> None:
        failed: InferenceResponse | None = None
        again: list[Ticket] = []
        execution.inferred = perf_counter_ns()
        try:
            ended_loop = task.result()
            if ended_loop is not None:
                raise ended_loop
            again = self.deliver(execution, box)
        except BaseException as error:
            again = []
            failed = failure(execution, error)
        tickets = execution.tickets
        execution.finished = True
        execution.task = None
        instance.loop.executions.discard(execution)
        self._finish(execution, failed)
        ended(instance, tickets, again)

    # -- both ----------------------------------------------------------------------------------------

    def _start(
        self, instance: Instance, tickets: Sequence[Ticket], placed: bool = True
    ) -> SendingExecution | None:
        """An execution of a batch, known to its tickets and its instance; None for nothing to run.

        For a profile it begins now if it is `placed` by that, else with its coroutine.
        """
        if all(t.cancelled or t.done for t in tickets if t.context is not None):
            self._cancel(tickets)
            return None
        requests = [self._prepare(t) for t in tickets]
        pairs = [(t, r) for t, r in zip(tickets, requests, strict=True) if r is not None]
        self._cancel([t for t, r in zip(tickets, requests, strict=True) if r is None])
        if not pairs:
            return None
        parents = [t.parent for t, _ in pairs if t.parent is not None]
        parent = max(parents, key=lambda p: p.depth, default=None)
        execution = SendingExecution(self._model.server, self._model, parent)
        execution.instance = instance
        execution.tickets = tuple(t for t, _ in pairs)
        execution.track = execution.tickets[0].track
        execution.requests = tuple(r for _, r in pairs)
        execution.started = perf_counter_ns()
        instance.holder = execution
        for ticket, request in pairs:
            if self._model.decoupled:
                request.get_response_sender()  # dropped with the request: so its end is noticed
            ticket.execution = execution
        log = recording.active
        spans = [t.span for t, _ in pairs if t.span]
        if log is not None and spans:
            execution.span = spans[0]
            if instance.gpu >= 0:
                execution.timer = log.measure(spans, instance.gpu)
            if placed:
                record_batch(execution, execution.started)
        return execution

    def _cancel(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            ticket.finish(cancelled_response(self._model.name))

    def _check(self, execution: SendingExecution, returned: Any) -> list[Ticket]:
        """Refuse what Triton refuses; give the tickets whose requests the model wants to see again."""
        tickets, requests = execution.tickets, execution.requests
        again = [getattr(r, "_release_flags", 0) == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE for r in requests]
        if returned is not None and self._model.decoupled:
            problem = (
                f"Python model '{execution.instance_name}' is using the decoupled mode and the execute "
                "function must return None."
            )
            if not all(t.done for t in tickets):
                raise ReturnError(problem)
            log_lost(execution, tickets[0], execute_failed(execution.instance_name, problem))
        elif returned is not None:
            check_returned(returned, len(requests))
            for response, wanted, ticket in zip(returned, again, tickets, strict=True):
                if response is not None and wanted:
                    raise ReturnError(
                        "Expected a None object in the execute function return list for reschduled request, "
                        "found type '<class 'c_python_backend_utils.InferenceResponse'>'."
                    )
                if response is not None and ticket.sent:
                    raise ReturnError(SECOND_RESPONSE)
        rescheduled = [t for t, wanted in zip(tickets, again, strict=True) if wanted and not t.done]
        if self._see_again is None:
            for ticket in rescheduled:
                message = execute_failed(execution.instance_name, rescheduled_in_vain())
                ticket.finish(error_response(message))
            return []
        for ticket in rescheduled:
            self._see_again(ticket)
        return rescheduled

    def _finish(self, execution: SendingExecution, failed: InferenceResponse | None) -> None:
        """Count the executions, let go of the requests, and answer those that failed."""
        started, ended = execution.started, perf_counter_ns()
        inferred = execution.inferred or ended
        batching = self._model.spec.max_batch_size > 0
        real = [
            (t, rows_of(r) if batching else 1)
            for t, r in zip(execution.tickets, execution.requests, strict=True)
            if t.context is not None
        ]
        if execution.span:
            record_batch_over(execution, inferred, ended)
        statistics = self._model.statistics
        with self._lock:
            if real:
                waits = [t.queued_at - t.arrived for t, _ in real]
                statistics.execution(
                    sum(rows for _, rows in real), max(waits), inferred - started, ended - inferred
                )
            for ticket, rows in real:
                if failed is not None:
                    statistics.failed(ended - ticket.arrived)
                else:
                    arrived, queued = ticket.arrived, ticket.queued_at
                    phases = (queued - arrived, inferred - started, ended - inferred)
                    statistics.succeeded(rows, (ended - arrived, started - queued, *phases))
        execution.requests = ()
        tickets, execution.tickets = execution.tickets, ()  # no cycle: what is over is freed at once
        if failed is not None:
            for ticket in tickets:
                ticket.finish(InferenceResponse([], failed._error))


may_be_interrupted(BatchRunner._run.__code__)
may_be_interrupted(_put_in.__code__)
