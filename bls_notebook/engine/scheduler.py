"""The default scheduler: hands one request at a time to an idle instance, first come first served.

Guarantees: an instance runs one `execute` at a time; nobody overtakes a queue; a synchronous request to an
idle model runs on the caller's thread; every request that was accepted is answered; once closed, no request
is accepted, and `on_drained` is called when the last one has been answered; an instance that is to leave
finishes what it has begun, and begins nothing else.

An instance always comes back, whatever strikes and wherever: Ctrl-C or another exception between any two
steps, the end of the stack, or what a model does. A caller's thread takes one only to run its own request,
by one step that is not Python code, and gives it back in the same way. A request that has to wait is put
into the queue, which is all that its sender does; instances for the queue are taken by the engine's own
threads, whose stacks are short and which no signal reaches.
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
from operator import attrgetter
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from bls_notebook.devices import ledger
from bls_notebook.observe import recording
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from . import spans
from .blocking import first_response
from .ctrl_c import may_be_interrupted
from .execution import Execution
from .failures import cancelled_response, error_response
from .interrupt import Interrupted, clear_interrupt
from .left import leave_to_senders
from .lost import log_lost
from .messages import execute_failed
from .outputs import answer, check_returned, returned_none
from .receiving import ARGUMENTS_STAY, taken_over
from .runner import BatchRunner, failure, rows_of
from .stack_room import need_room
from .statistics import FOLD_AT
from .threads import Wakeup, start_in_thread
from .ticket import SECOND_RESPONSE, Ticket
from .warnings import with_warnings

if TYPE_CHECKING:
    from .instance import Instance
    from .model import LoadedModel

__all__ = ["DefaultScheduler"]

_get_ident = threading.get_ident
_LAST = (-1,)


class DefaultScheduler:
    """Default scheduler of one model version."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._idle: list[Instance] = list(model.instances)[::-1]
        self._take_idle = self._idle.pop
        self._queue: deque[Ticket] = deque()
        self._open: set[Ticket] = set()  # accepted, and not answered yet
        self._on_drained: Callable[[], None] | None = None
        self._closed = False
        self._count = len(self._idle)
        self._leaving: dict[Instance, Callable[[Instance], None]] = {}  # to leave, and who is told
        self._finishing: list[Instance] = []  # of those: idle, but for responses that are yet to come
        self._watch = False  # somebody is told when an instance comes back: closed, or some are to leave
        self._wakeup = Wakeup()  # of the worker thread that serves the queue next
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
                return self._call_queued(parent, ticket)
        execution = Execution(parent.server, model, parent)
        request._answerable = execution
        held: list[Instance] = []  # the instance is in here or among the idle ones, at every moment
        before = caller_var.get()
        running_loop = _get_running_loop()
        response: InferenceResponse | None = None
        guard = None
        span = inferred = 0
        try:
            with self._lock:
                if self._idle and not self._queue and not self._closed:
                    held.extend(map(self._take_idle, _LAST))
            if not held:
                ticket = Ticket(model, request, parent, copy_context())
                del request
                return self._call_queued(parent, ticket)
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
            caller_var.set(execution)
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
            if ledger.recording is not None:
                execution.track = getattr(request, "_track", 0)
            execution.started = started = perf_counter_ns()
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
                    again = execute_failed(execution.instance_name, SECOND_RESPONSE)
                    log_lost(execution, execution.ticket, again)
            except BaseException as error:
                failed = True
                with self._lock:
                    ended = perf_counter_ns()
                    model.statistics.execution(rows, started - begun, ended - started, 0)
                    model.statistics.failed(ended - begun)
                response = failure(execution, error, True)
            else:
                with self._lock:
                    ended = perf_counter_ns()
                    if rows == 1:
                        recent = model.statistics.recent
                        recent.append((begun, started, inferred, ended))
                        if len(recent) >= FOLD_AT:
                            model.statistics.fold()
                    else:
                        model.statistics.one(rows, begun, started, inferred, ended, 0)
        finally:
            # Each of these is one step, and whatever comes in between, the next is taken.
            try:
                for instance in held:
                    instance.holder = None
                self._idle.extend(held)
            finally:
                try:
                    caller_var.set(before)
                finally:
                    if running_loop is not None:
                        _set_running_loop(running_loop)
            if guard is None:
                execution.finished = True
            else:
                parent.unwatch(execution, guard)
            if self._queue or self._watch:
                self._wake()
            if span:
                if timer is not None:
                    timer.end()
                log = recording.active
                if response is None or response._error is not None or execution.ticket is not None:
                    times = (begun, 0, rows, inferred, ended)
                    spans.record_call(execution, options, bytes_in, *times, response, failed)
                elif log is not None:  # all at once: every call pays for this
                    outs = response._outputs
                    one = len(outs) == 1 and outs[0]._datatype != "BYTES"
                    log.whole.extend((
                        span, parent.span, instance.place, options, bytes_in, begun, 0, thread, rows,
                        started, inferred, ended, outs[0]._array.nbytes if one else recording.nbytes(outs),
                    ))  # fmt: skip
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

    # -- in the background -------------------------------------------------------------------------

    def _call_queued(self, parent: Execution, ticket: Ticket) -> InferenceResponse:
        need_room()
        parent.note_blocking(self._model.name)
        parent.adopt(ticket)
        self.submit(ticket)
        return first_response(ticket)

    def submit(self, ticket: Ticket) -> None:
        """Queue a request; a worker thread or an instance's loop runs it."""
        with self._lock:
            closed = self._closed
            if not closed:
                self._open.add(ticket)
                ticket.queued = True
                self._queue.append(ticket)
        if closed:
            self._model.pass_on(ticket)
        elif self._idle:
            self._wake()

    def _wake(self) -> None:
        """Have one of the engine's threads see to the queue, and to what is to be done at the end."""
        if not self._async:
            if self._wakeup.taken:
                wakeup = Wakeup(self._come)
                start_in_thread(wakeup)
                self._wakeup = wakeup
            return
        instance = min(list(self._idle), key=attrgetter("load"), default=None)
        if instance is not None:
            instance.wake(self._turn)

    def _begin_next(self, instance: Instance | None) -> tuple[Instance, Ticket] | None:
        """Take an instance, or just this one, for the next request; None where there is nothing to do."""
        told: Sequence[Callable[[], None]] = ()
        with self._lock:
            if self._queue and (instance in self._idle if instance is not None else self._idle):
                found = self._idle[-1] if instance is None else instance
                self._idle.remove(found)
                ticket = self._queue.popleft()
                self._hand(found, ticket)
                more = bool(self._queue and self._idle)
            else:
                found = None
                more = instance is not None and bool(self._queue and self._idle)
                told = self._told() if self._watch else ()
        if more:
            self._wake()
        for tell in told:
            tell()
        return None if found is None else (found, ticket)

    def _hand(self, instance: Instance, ticket: Ticket) -> None:
        """An instance that has been taken has its next request; the lock is held."""
        ticket.queued = False
        instance.holder = ticket
        if self._shared:
            ticket.serving = instance.serving
            ticket.serving.add(ticket)

    @property
    def pending(self) -> int:
        """How many requests are in the queue."""
        return len(self._queue)

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
        self._open.discard(ticket)
        if ticket.serving is not None:
            ticket.serving.discard(ticket)
        if self._watch:
            self._tell()

    def _come(self) -> None:
        """Serve the queue, on a worker thread; on more threads where more instances are idle."""
        begun = self._begin_next(None)
        if begun is not None:
            self._work(*begun)

    def _work(self, instance: Instance, ticket: Ticket) -> None:
        """Serve requests by one instance until none is queued."""
        # What this thread has to see to, whatever happens in between: the instance, and who is next.
        held, line = [instance], [ticket]
        while line:
            ticket = line.pop()
            context = ticket.context
            try:
                if context is None or self._model.decoupled:
                    self._runner.run(instance, (ticket,))
                else:
                    context.run(self._serve, held, line, ticket)
            except BaseException as error:
                self._broken(ticket, error)
            if held and not line:
                self._next(held, line)

    def _next(self, held: list[Instance], line: list[Ticket]) -> None:
        """Give an instance back, or keep it for the next request."""
        instance = held[0]
        with self._lock:
            if self._queue and instance not in self._leaving:
                ticket = self._queue.popleft()
                self._hand(instance, ticket)
                line.append(ticket)
                return
            instance.holder = None
            self._idle.append(held.pop())
        if self._watch:
            self._tell()

    def _serve(self, held: list[Instance], line: list[Ticket], ticket: Ticket) -> None:
        """Run a queued request, in its own context; `BatchRunner.run` and `_next`, on the shortest way.

        The scheduler's lock is taken once: under it the request is counted and answered, and the
        instance goes to the next request, which is put into `line`. It is also what keeps an interrupt from
        coming late: see `Execution.interruptible`.
        """
        request, ticket.request = ticket.request, None
        model, instance = self._model, held[0]
        if request is None or ticket.cancelled or ticket.done:
            ticket.finish(cancelled_response(model.name))
            return
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
                    self._open.discard(ticket)
            if self._queue and instance not in self._leaving:
                following = self._queue.popleft()
                following.queued = False
                instance.holder = following
                line.append(following)
            else:
                instance.holder = None
                self._idle.append(held.pop())
        if span:
            spans.record_served(execution, answered, rows, inferred, ended, bytes_out, ticket.cancelled)
        execution.requests = ()
        execution.tickets = ()  # no cycle: what was sent and answered is freed at once
        if answered:
            ticket.tell()
        elif response is not None:
            ticket.finish(response)
        if self._watch:
            self._tell()

    def _broken(self, ticket: Ticket, error: BaseException) -> None:
        """Answer a request that was left by an exception in the engine itself.

        As a rule it is an interrupt that arrived when the model had been left already.
        """
        execution = ticket.execution
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
            response = cancelled_response(self._model.name)
        else:
            response = failure(execution, error)
        ticket.finish(response)

    def _turn(self, instance: Instance) -> None:
        """Begin a request of an async model, on the thread of the instance's loop."""
        begun = self._begin_next(instance)
        if begun is not None:
            self._begin([instance], [begun[1]])

    def _begin(self, held: list[Instance], line: list[Ticket]) -> None:
        """Begin requests of an async model until one occupies the instance or none is queued."""
        while line:
            ticket = line.pop()
            under_way = self._runner.begin(held[0], (ticket,), self._ended)
            if self._model.decoupled:  # its requests share the loop
                self._release(held.pop())
            elif not under_way:
                self._next(held, line)

    def _ended(self, instance: Instance, tickets: Sequence[Ticket], again: list[Ticket]) -> None:
        if not self._model.decoupled:
            held, line = [instance], list[Ticket]()
            self._next(held, line)
            self._begin(held, line)

    def _release(self, instance: Instance) -> None:
        """Give an instance to whatever is queued, or to nobody: one of many loops may have less to do."""
        with self._lock:
            instance.holder = None
            self._idle.append(instance)
        if self._queue:
            self._wake()
        if self._watch:
            self._tell()

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
        self._tell()

    def close(self, on_drained: Callable[[], None]) -> None:
        """Accept no more requests; call `on_drained` once when all has been answered."""
        with self._lock:
            self._closed = self._watch = True
            self._on_drained = on_drained
        self._tell()

    def _tell(self) -> None:
        with self._lock:
            told = self._told()
        for tell in told:
            tell()

    def _told(self) -> list[Callable[[], None]]:
        """What to call: of instances that left, and when nothing is in flight any more. Lock held."""
        out: list[Callable[[], None]] = []
        for instance in list(self._leaving):
            if instance in self._idle:
                self._finishing.append(instance)
                self._idle.remove(instance)
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
