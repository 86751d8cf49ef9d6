"""The default scheduler: hands one request at a time to an idle instance, first come first served.

Guarantees: an instance runs one `execute` at a time; nobody overtakes a queue; a synchronous request
to an idle model runs on the caller's thread (so does one that had to wait for its turn); every request
that was accepted is answered; an instance always comes back, whatever `execute` does; once closed,
no request is accepted, and `on_drained` is called when the last one has been answered; an instance that is
to leave finishes what it has begun, and begins nothing else.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from asyncio.events import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from bls_notebook.devices import ledger
from bls_notebook.observe import recording
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from . import janitor, spans
from .blocking import first_response, wait_for
from .ctrl_c import may_be_interrupted
from .execution import Execution, ModelClosed
from .failures import cancelled_response, error_response
from .interrupt import Interrupted, clear_interrupt
from .left import leave_to_senders
from .lost import log_lost
from .messages import execute_failed
from .outputs import answer, check_returned, returned_none
from .receiving import ARGUMENTS_STAY, taken_over
from .runner import BatchRunner, failure, rows_of
from .statistics import FOLD_AT
from .threads import start_in_thread
from .ticket import SECOND_RESPONSE, Ticket
from .warnings import with_warnings

if TYPE_CHECKING:
    from .instance import Instance
    from .model import LoadedModel

__all__ = ["DefaultScheduler"]

_get_ident = threading.get_ident


class DefaultScheduler:
    """Default scheduler of one model version."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._idle: list[Instance] = list(model.instances)[::-1]
        self._queue: deque[Ticket] = deque()
        self._open = 0  # tickets that are not answered yet
        self._on_drained: Callable[[], None] | None = None
        self._closed = False
        self._count = len(self._idle)
        self._leaving: dict[Instance, Callable[[Instance], None]] = {}  # to leave, and who is told
        self._finishing: list[Instance] = []  # of those: idle, but for responses that are yet to come
        self._watch = False  # somebody is told when an instance comes back: closed, or some are to leave
        self._async = any(i.is_async for i in model.instances)
        self._shared = self._async or model.decoupled  # an instance may have several unanswered requests
        self._takes_over = self._async or ARGUMENTS_STAY  # one look for both: every call pays for it
        self._batching = model.spec.max_batch_size > 0
        self._runner = BatchRunner(model, self._lock)

    # -- sync, on the caller's thread --------------------------------------------------------------

    def call(self, parent: Execution, request: InferenceRequest) -> InferenceResponse:
        """Serve a request and wait for its answer."""
        model = self._model
        if self._takes_over:
            request = taken_over(request) if ARGUMENTS_STAY else request
            if self._async:
                ticket = Ticket(model, request, parent, copy_context())
                del request  # whoever holds it could still answer it
                return self._call_async(parent, ticket)
        execution = Execution(parent.server, model, parent)
        request._answerable = execution
        with self._lock:
            if self._closed:
                raise ModelClosed(request)
            if self._idle:
                instance = self._idle.pop()
                instance.holder = execution
            else:
                instance = None
        queue_ns = queued = inferred = 0
        if instance is None:
            queued = perf_counter_ns()
            turn = self._wait_for_turn(execution, request)
            if isinstance(turn, InferenceResponse):
                return turn
            instance = turn
            queue_ns = perf_counter_ns() - queued
        execution.instance = instance
        execution.request = request
        execution.thread = thread = _get_ident()
        guard = parent.watch(execution) if parent.thread != thread or parent.task is not None else None
        running_loop = _get_running_loop()
        if running_loop is not None:  # model code must not see the caller's (or Jupyter's) loop
            _set_running_loop(None)
            parent.note_blocking(model.name)
        before = caller_var.get()
        caller_var.set(execution)
        response: InferenceResponse | None = None
        begun = request._arrived
        rows = rows_of(request) if self._batching else 1
        failed = False
        span = execution.span = request._span
        if span:  # it is recorded for a profile
            options, inputs = request._options, request._inputs
            one = len(inputs) == 1 and inputs[0]._datatype != "BYTES"
            bytes_in = inputs[0]._array.nbytes if one else recording.nbytes(inputs)
            del inputs
            timer = spans.measured(span, instance) if instance.gpu >= 0 else None
        execution.started = started = perf_counter_ns()
        if ledger.recording is not None:
            execution.track = getattr(request, "_track", 0)
        try:
            returned = instance.execute([request])
            if returned.__class__ is not list:
                returned = self._settle(execution, returned)
            inferred = perf_counter_ns()
            one = returned.__class__ is list and len(returned) == 1
            if not one or returned[0].__class__ is not InferenceResponse:
                check_returned(returned, 1)
            requested = request._requested
            execution.request = None
            del request
            if returned[0] is not None and execution.ticket is None:
                response = answer(returned, 0, requested, True, model.outputs, execution)
                if response._warnings:
                    response = with_warnings(response, model, execution, parent)
            elif returned[0] is not None and execution.ticket is not None and execution.ticket.done:
                log_lost(
                    execution, execution.ticket, execute_failed(execution.instance_name, SECOND_RESPONSE)
                )
        except BaseException as error:
            failed = True
            response = failure(execution, error, True)
        finally:
            caller_var.set(before)
            if running_loop is not None:
                _set_running_loop(running_loop)
            if guard is None:
                execution.finished = True
            else:
                parent.unwatch(execution, guard)
            with self._lock:  # as _next does, without another call
                ended = perf_counter_ns()
                if failed:
                    model.statistics.execution(rows, started - begun - queue_ns, ended - started, 0)
                    model.statistics.failed(ended - begun)
                elif rows == 1 and not queue_ns:
                    recent = model.statistics.recent
                    recent.append((begun, started, inferred, ended))
                    if len(recent) >= FOLD_AT:
                        model.statistics.fold()
                else:
                    model.statistics.one(rows, begun, started, inferred, ended, queue_ns)
                contended = bool(self._queue) or self._watch
                if not contended:
                    instance.holder = None
                    self._idle.append(instance)
            if span:
                if timer is not None:
                    timer.end()
                log = recording.active
                if response is None or response._error is not None or execution.ticket is not None:
                    times = (begun, queued, rows, inferred, ended)
                    spans.record_call(execution, options, bytes_in, *times, response, failed)
                elif log is not None:  # all at once: every call pays for this
                    outs = response._outputs
                    one = len(outs) == 1 and outs[0]._datatype != "BYTES"
                    log.whole.extend((
                        span, parent.span, instance.place, options, bytes_in, begun, queued, thread, rows,
                        started, inferred, ended, outs[0]._array.nbytes if one else recording.nbytes(outs),
                    ))  # fmt: skip
            if contended:
                self._release(instance)
        if response is None:
            return self._late_answer(execution)
        if execution.ticket is not None and not execution.ticket.finish(response):
            return self._late_answer(execution)
        return response

    def _settle(self, execution: Execution, returned: Any) -> Any:
        """What a list-less return stands for: a coroutine's result, or one None for each request."""
        if inspect.iscoroutine(returned):
            assert execution.instance is not None
            loop = execution.instance.loop.loop
            returned = asyncio.run_coroutine_threadsafe(returned, loop).result()
        if returned is None:
            if execution.request is not None:
                ticket = execution.open_ticket(execution.request)
                execution.request._answerable = ticket
                janitor.start()
                execution.request.get_response_sender()
                leave_to_senders(ticket)
            return [None]
        return returned

    def _late_answer(self, execution: Execution) -> InferenceResponse:
        """The answer that the model's sender gave, or will give."""
        ticket = execution.ticket
        if ticket is None:  # a list with None in it
            name = execution.instance_name
            response = error_response(execute_failed(name, returned_none("execute returned [None]")))
            spans.record_answer(execution.span, response)
            return response
        return first_response(ticket)

    def _wait_for_turn(self, execution: Execution, request: InferenceRequest) -> Instance | InferenceResponse:
        parent = execution.parent
        ticket = Ticket(self._model, request, parent, None)
        ticket.inline = True
        if ticket.span and parent is not None:
            ticket.record_begin(request)
        with self._lock:
            if self._closed:
                raise ModelClosed(request)
            self._open += 1
            if self._idle:  # one came back meanwhile
                instance = self._idle.pop()
                instance.holder = execution
                ticket.granted = instance
            else:
                ticket.queued = True
                self._queue.append(ticket)
        if parent is not None:
            parent.adopt(ticket)
        try:
            wait_for(ticket)
        except BaseException:
            granted = ticket.abandon()
            if granted is not None:
                self._release(granted)
            raise
        finally:
            with self._lock:
                self._open -= 1
                told = self._told() if self._watch else ()
            if parent is not None:
                parent.forget(ticket)
            for tell in told:
                tell()
        if ticket.granted is None:
            taken = ticket.take()
            return taken[0] if taken is not None else cancelled_response(self._model.name)
        ticket.granted.holder = execution
        return ticket.granted

    def _call_async(self, parent: Execution, ticket: Ticket) -> InferenceResponse:
        parent.note_blocking(self._model.name)
        parent.adopt(ticket)
        self.submit(ticket)
        return first_response(ticket)

    # -- in the background -------------------------------------------------------------------------

    def submit(self, ticket: Ticket) -> None:
        """Queue a request; a worker thread or the instance's loop runs it."""
        instance = None
        with self._lock:
            closed = self._closed
            if not closed:
                self._open += 1
                if self._idle:
                    instance = self._least_busy() if self._async else self._idle.pop()
                    instance.holder = ticket
                    if self._shared:
                        ticket.serving = instance
                        instance.load += 1
                else:
                    ticket.queued = True
                    self._queue.append(ticket)
        if closed:
            self._model.pass_on(ticket)
        elif instance is not None:
            self._dispatch(instance, ticket)

    @property
    def pending(self) -> int:
        """How many requests are in the queue."""
        return len(self._queue)

    def _least_busy(self) -> Instance:
        """Take the idle instance whose loop has the least to do; the lock is held."""
        best = min(self._idle, key=lambda i: i.load)
        self._idle.remove(best)
        return best

    def withdraw(self, ticket: Ticket) -> bool:
        """Take a request out of the queue."""
        with self._lock:
            if not ticket.queued:
                return False
            self._queue.remove(ticket)
            ticket.queued = False
            reason = "OTHER" if ticket.refused else "CANCELED"
            self._model.statistics.failed(perf_counter_ns() - ticket.arrived, reason)
        return True

    def settled(self, ticket: Ticket) -> None:
        """Count a ticket as answered."""
        if ticket.context is None:
            return  # never was in this scheduler's count: it ran on its caller's thread
        with self._lock:
            self._open -= 1
            serving, ticket.serving = ticket.serving, None
            if serving is not None:
                serving.load -= 1
            told = self._told() if self._watch else ()
        for tell in told:
            tell()

    def _dispatch(self, instance: Instance, ticket: Ticket) -> None:
        if ticket.inline:
            if not ticket.grant(instance):
                self._release(instance)
        elif instance.is_async:
            instance.loop.post(partial(self._begin, instance, ticket))
        else:
            start_in_thread(partial(self._work, instance, ticket))

    def _release(self, instance: Instance) -> None:
        ticket = self._next(instance)
        if ticket is not None:
            self._dispatch(instance, ticket)

    def _next(self, instance: Instance) -> Ticket | None:
        """Give up an instance: to the next request, which is returned, or to the idle ones."""
        with self._lock:
            if self._queue and instance not in self._leaving:
                ticket = self._queue.popleft()
                ticket.queued = False
                instance.holder = ticket
                if self._shared:
                    ticket.serving = instance
                    instance.load += 1
                return ticket
            instance.holder = None
            self._idle.append(instance)
            told = self._told() if self._watch else ()
        for tell in told:
            tell()
        return None

    def _work(self, instance: Instance, ticket: Ticket | None) -> None:
        """Serve requests on a worker thread until none is queued."""
        while ticket is not None:
            if ticket.inline:
                if ticket.grant(instance):
                    return
                ticket = self._next(instance)
                continue
            context = ticket.context
            if context is None or self._model.decoupled:
                self._runner.run(instance, (ticket,))
                ticket = self._next(instance)
                continue
            served = ticket
            try:
                ticket = context.run(self._serve, instance, served)
            except Interrupted:  # arrived after the model was left
                ticket = self._left(instance, served)

    def _serve(self, instance: Instance, ticket: Ticket) -> Ticket | None:
        """Run a queued request, in its own context; `BatchRunner.run` and `_next`, on the shortest way.

        The scheduler's lock is taken once: under it the request is counted and answered, and the
        instance goes to the next request, which is returned. It is also what keeps an interrupt from
        coming late: see `Execution.interruptible`.
        """
        request, ticket.request = ticket.request, None
        model = self._model
        if request is None or ticket.cancelled or ticket.done:
            ticket.finish(cancelled_response(model.name))
            return self._next(instance)
        request._answerable = ticket
        rows = rows_of(request) if self._batching else 1
        execution = Execution(model.server, model, ticket.parent)
        execution.instance = instance
        execution.tickets = (ticket,)
        execution.track = ticket.track
        execution.requests = (request,)
        execution.thread = _get_ident()
        execution._guard = self._lock
        instance.holder = execution
        ticket.execution = execution
        span = execution.span = ticket.span
        timer = spans.measured(span, instance) if span and instance.gpu >= 0 else None
        caller_var.set(execution)  # the context is the ticket's own: nothing to put back
        response: InferenceResponse | None = None
        failed = answered = False
        told: Sequence[Callable[[], None]] = ()
        execution.started = started = inferred = perf_counter_ns()
        try:
            returned = instance.execute([request])
            inferred = perf_counter_ns()
            if (
                returned.__class__ is list
                and len(returned) == 1
                and returned[0].__class__ is InferenceResponse
                and not ticket.sent
            ):
                execution.requests = ()
                del request
                response = answer(returned, 0, ticket.requested, True, model.outputs, execution, ticket)
                if response._warnings:
                    response = with_warnings(response, model, execution, ticket.parent)
            else:
                del request
                self._runner.take(execution, returned)
        except BaseException as error:
            failed = True
            response = failure(execution, error)
        bytes_out = spans.given_bytes(response, timer) if span else 0
        with self._lock:
            execution.finished = True
            if execution.cancelled:
                clear_interrupt(execution.thread)  # what has not arrived by now never will
            ended = perf_counter_ns()
            if failed:
                waited = ticket.queued_at - ticket.arrived
                model.statistics.execution(rows, waited, inferred - started, ended - inferred)
                model.statistics.failed(ended - ticket.arrived)
            else:
                queued = model.statistics.queued
                queued.append((rows, ticket.arrived, ticket.queued_at, started, inferred, ended))
                if len(queued) >= FOLD_AT:
                    model.statistics.fold()
                if response is not None and response._error is None and ticket.answer(response, ended):
                    answered = True
                    self._open -= 1
            if self._queue and instance not in self._leaving:
                following = self._queue.popleft()
                following.queued = False
                instance.holder = following
            else:
                following = None
                instance.holder = None
                self._idle.append(instance)
                if self._watch:
                    told = self._told()
        if span:
            spans.record_served(execution, answered, rows, inferred, ended, bytes_out, ticket.cancelled)
        execution.requests = ()
        execution.tickets = ()  # no cycle: what was sent and answered is freed at once
        if answered:
            ticket.tell()
        elif response is not None:
            ticket.finish(response)
        for tell in told:
            tell()
        return following

    def _left(self, instance: Instance, ticket: Ticket) -> Ticket | None:
        """Give up an instance whose thread was interrupted between the model and the end of `_serve`."""
        execution = ticket.execution
        interrupted = execution is not None
        while execution is not None and interrupted:
            try:
                with self._lock:
                    execution.finished = True
                clear_interrupt(execution.thread)
                interrupted = False
            except Interrupted:
                pass  # pressed once more
        ticket.finish(cancelled_response(self._model.name))
        return self._next(instance)

    def _begin(self, instance: Instance, ticket: Ticket) -> None:
        """Start one request of an async model; on the thread of the instance's loop."""
        under_way = self._runner.begin(instance, (ticket,), self._ended)
        if not under_way or self._model.decoupled:  # requests of a decoupled model share the loop
            self._release(instance)

    def _ended(self, instance: Instance, tickets: Sequence[Ticket], again: list[Ticket]) -> None:
        if not self._model.decoupled:
            self._release(instance)

    # -- other instances, and none -------------------------------------------------------------------

    def resize(
        self, added: Sequence[Instance], removed: Sequence[Instance], on_left: Callable[[Instance], None]
    ) -> None:
        """Hand requests to instances more, and to others no more."""
        with self._lock:
            self._count += len(added)
        for instance in added:
            self._release(instance)
        with self._lock:
            self._leaving.update(dict.fromkeys(removed, on_left))
            self._watch = True
            told = self._told()
        for tell in told:
            tell()

    def close(self, on_drained: Callable[[], None]) -> None:
        """Accept no more requests; call `on_drained` once when all has been answered."""
        with self._lock:
            self._closed = self._watch = True
            self._on_drained = on_drained
            told = self._told()
        for tell in told:
            tell()

    def _told(self) -> list[Callable[[], None]]:
        """What to call: of instances that left, and when nothing is in flight any more. Lock held."""
        out: list[Callable[[], None]] = []
        if self._leaving:
            self._finishing += [i for i in self._idle if i in self._leaving]
            self._idle = [i for i in self._idle if i not in self._leaving]
            for instance in [i for i in self._finishing if not i.load]:
                self._finishing.remove(instance)
                self._count -= 1
                out.append(partial(self._leaving.pop(instance), instance))
        self._watch = self._closed or bool(self._leaving)
        if self._on_drained is not None and not self._open and len(self._idle) == self._count:
            out.append(self._on_drained)
            self._on_drained = None
        return out


may_be_interrupted(DefaultScheduler.call.__code__)
may_be_interrupted(DefaultScheduler._serve.__code__)
