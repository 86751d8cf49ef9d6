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

from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.errors import TritonModelException
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from . import call_keys
from .calling import SendingExecution
from .core.instance import Instance
from .core.model import LoadedModel
from .core.statistics import FOLD_AT
from .delivering import Answers, SeeAgain, deliver, failure
from .failures import alike, cancelled_response
from .recording import log as recording
from .recording.spans import record_batch, record_batch_over
from .tensors.inbound import rows_of
from .ticket import Ticket
from .waiting.ctrl_c import may_be_interrupted
from .waiting.interrupt import Interrupted, clear_interrupt

# Called once a batch is over, with the tickets whose requests the model wants to see again.
Ended = Callable[[Instance, Sequence[Ticket], list[Ticket]], None]
_get_ident = threading.get_ident


def take_request(ticket: Ticket) -> InferenceRequest | None:
    """Return a ticket's request, to be run once."""
    request, ticket.request = ticket.request, None
    if request is not None:
        request._answerable = ticket
        request._release_flags = 0
    return request


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

    `lock`: the scheduler's, under which executions are counted. `prepare`: gives the request of a ticket as
    the model is to receive it, with the one who takes its answers; None where it may not be run any more.
    `see_again`: called before the request of a ticket is let go that the model wants to see again. Where
    there is none, models ask for that in vain.
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

    # -- sync ----------------------------------------------------------------------------------------

    def run(
        self, instance: Instance, tickets: Sequence[Ticket], over: Callable[[], None] | None = None
    ) -> list[Ticket]:
        """Run a batch of a sync model on this worker thread. Raises nothing.

        `over`: called once the batch has been counted and before it is answered, with the lock held; not
        where nothing was run. Returns list of Ticket: those whose requests the model wants to see again.
        """
        try:
            for ticket in tickets:
                if ticket.context is not None:
                    return ticket.context.run(self._run, instance, tickets, over)
            return self._run(instance, tickets, over)
        except BaseException as error:
            self._broken(tickets, error)
            return []

    def run_inline(self, instance: Instance, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Run a batch on the thread of the one who asked for it; as `run`.

        Raises KeyboardInterrupt: Ctrl-C; the requests have been answered then.
        """
        before = caller_var.get()
        running_loop = _get_running_loop()
        try:
            if running_loop is not None:  # model code must not see the caller's (or Jupyter's) loop
                _set_running_loop(None)
            return self._run(instance, tickets, None, True)
        finally:
            caller_var.set(before)
            if running_loop is not None:
                _set_running_loop(running_loop)

    def _run(
        self,
        instance: Instance,
        tickets: Sequence[Ticket],
        over: Callable[[], None] | None,
        inline: bool = False,
    ) -> list[Ticket]:
        execution = self._start(instance, tickets)
        if execution is None:
            return []
        execution.thread = thread = _get_ident()
        parent = execution.parent
        # Inline, it is stopped with its parent, unless that is somewhere else.
        if not inline or parent is None or parent.thread != thread or parent.task is not None:
            execution._guard = self._lock
        caller_var.set(execution)
        failed: InferenceResponse | None = None
        again: list[Ticket] = []
        given: Answers = []
        try:
            box = [instance.execute(list(execution.requests))]
            again = deliver(execution, box, given, self._see_again)
        except BaseException as error:
            again = []
            failed = cancelled_response(self._model.name)  # where the next line raises: Ctrl-C
            failed = failure(execution, error, inline)
        finally:
            self._finish(execution, given, failed, over)
        return again

    def _broken(self, tickets: Sequence[Ticket], error: BaseException) -> None:
        """Answer requests that were left by an exception in the engine itself.

        As a rule it is an interrupt that arrived when the model had been left already.
        """
        execution = next((t.execution for t in tickets if t.execution is not None), None)
        ours = execution is not None
        while execution is not None and ours:
            try:
                with self._lock:
                    execution.finished = True
                clear_interrupt(execution.thread)
                ours = False
            except Interrupted:
                pass  # pressed once more
        if execution is None or isinstance(error, Interrupted):
            self._cancel(tickets)
            return
        response = failure(execution, error)
        for ticket in tickets:
            ticket.finish(alike(response))

    # -- async ---------------------------------------------------------------------------------------

    def begin(self, instance: Instance, tickets: Sequence[Ticket], ended: Ended) -> bool:
        """Start a batch of an async model; on the thread of the instance's loop.

        Returns bool: whether it is under way: then `ended` is called once it is over, on the same thread.
        Otherwise it is over already, and `ended` is not called.
        """
        context = next((t.context for t in tickets if t.context is not None), None)
        execution = self._start(instance, tickets, placed=False)
        if context is None or execution is None:
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
            self._finish(execution, [], failure(execution, error))
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
        given: Answers = []
        execution.inferred = perf_counter_ns()
        try:
            ended_loop = task.result()
            if ended_loop is not None:
                raise ended_loop
            again = deliver(execution, box, given, self._see_again)
        except BaseException as error:
            again = []
            failed = failure(execution, error)
        tickets = execution.tickets
        execution.task = None
        instance.loop.executions.discard(execution)
        self._finish(execution, given, failed)
        ended(instance, tickets, again)

    # -- both ----------------------------------------------------------------------------------------

    def _start(
        self, instance: Instance, tickets: Sequence[Ticket], placed: bool = True
    ) -> SendingExecution | None:
        """An execution of a batch, known to its tickets and its instance; None for nothing to run.

        For a profile it begins now if it is `placed` by that, else with its coroutine.
        """
        parent, wanted = None, False
        run: list[Ticket] = []
        requests: list[InferenceRequest] = []
        for ticket in tickets:
            request = self._prepare(ticket)
            if request is None:
                ticket.finish(cancelled_response(self._model.name))
                continue
            run.append(ticket)
            requests.append(request)
            sender = ticket.parent
            if sender is not None and (parent is None or sender.depth > parent.depth):
                parent = sender
            wanted = wanted or (ticket.context is not None and not ticket.cancelled and not ticket.done)
        if not wanted:
            self._cancel(run)
            return None
        execution = SendingExecution(self._model.server, self._model, parent)
        execution.instance = instance
        execution.tickets = run
        execution.track = run[0].track
        execution.requests = requests
        if call_keys.active:
            execution.call_key = getattr(requests[0], "_call_key", None)
        execution.rows = [rows_of(r) for r in requests] if self._batching else [1] * len(run)
        instance.holder = execution
        for ticket in run:
            ticket.execution = execution
        if self._model.decoupled:
            for request in requests:
                request.get_response_sender()  # dropped with the request: so its end is noticed
        execution.started = perf_counter_ns()
        log = recording.active
        if log is not None and (spans := [t.span for t in run if t.span]):
            execution.span = spans[0]
            if instance.gpu >= 0:
                execution.timer = log.measure(spans, instance.gpu)
            if placed:
                record_batch(execution, execution.started)
        return execution

    def _cancel(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            ticket.finish(cancelled_response(self._model.name))

    def _finish(
        self,
        execution: SendingExecution,
        given: Answers,
        failed: InferenceResponse | None,
        over: Callable[[], None] | None = None,
    ) -> None:
        """Count an execution, and answer its requests.

        The lock is also what keeps an interrupt from coming late: see `Execution._guard`.
        """
        tickets = execution.tickets
        with self._lock:
            execution.finished = True
            if execution.cancelled and execution._guard is not None:
                clear_interrupt(execution.thread)  # what has not arrived by now never will
            ended = perf_counter_ns()
            if over is not None:
                over()
        inferred = execution.inferred or ended
        if len(tickets) == 1 and failed is None:
            ticket, statistics = tickets[0], self._model.statistics
            entry = (execution.rows[0], ticket.arrived, ticket.queued_at, execution.started, inferred, ended)
            statistics.alone.append(entry)
            if len(statistics.alone) >= FOLD_AT:
                statistics.fold()
        else:
            self._count_batch(execution, failed is not None, inferred, ended)
        if execution.span:
            record_batch_over(execution, inferred, ended)
        execution.requests = ()
        execution.tickets = ()  # no cycle: what is over is freed at once
        for ticket, response in given:
            ticket.finish(response)
        if failed is not None:
            for ticket in tickets:
                ticket.finish(alike(failed))

    def _count_batch(self, execution: SendingExecution, failed: bool, inferred: int, ended: int) -> None:
        statistics, tickets, started = self._model.statistics, execution.tickets, execution.started
        waited = whole = 0
        for ticket, rows in zip(tickets, execution.rows, strict=True):
            if ticket.context is None:  # made by the scheduler itself
                continue
            arrived, queued = ticket.arrived, ticket.queued_at
            waited, whole = max(waited, queued - arrived), whole + rows
            if failed:
                statistics.failed(ended - arrived)
            else:
                phases = (queued - arrived, inferred - started, ended - inferred)
                statistics.succeeded(rows, (ended - arrived, started - queued, *phases))
        statistics.execution(whole, waited, inferred - started, ended - inferred)


may_be_interrupted(BatchRunner._run.__code__)
may_be_interrupted(_put_in.__code__)
