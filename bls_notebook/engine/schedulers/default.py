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

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from operator import attrgetter
from time import perf_counter_ns
from typing import TYPE_CHECKING

from bls_notebook.engine.calling import SendingExecution
from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.statistics import FOLD_AT
from bls_notebook.engine.failures import cancelled_response
from bls_notebook.engine.inline import inline_call
from bls_notebook.engine.recording import spans
from bls_notebook.engine.runner import BatchRunner, failure
from bls_notebook.engine.tensors.inbound import ARGUMENTS_STAY, rows_of, taken_over
from bls_notebook.engine.tensors.outputs import answer
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.ctrl_c import may_be_interrupted
from bls_notebook.engine.waiting.interrupt import Interrupted, clear_interrupt
from bls_notebook.engine.waiting.stack_room import need_room
from bls_notebook.engine.waiting.threads import Wakeup, start_in_thread
from bls_notebook.engine.waiting.waiting import first_response
from bls_notebook.engine.warnings import with_warnings
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

if TYPE_CHECKING:
    from bls_notebook.engine.core.instance import Instance
    from bls_notebook.engine.core.model import LoadedModel

from .lifecycle import Lifecycle

__all__ = ["DefaultScheduler"]

_get_ident = threading.get_ident


class DefaultScheduler(Lifecycle):
    """Default scheduler of one model version."""

    def __init__(self, model: LoadedModel) -> None:
        # A deque, which needs no memory to take back what it has given.
        self._idle: deque[Instance] = deque(reversed(model.instances))
        self._queue: deque[Ticket] = deque()
        super().__init__(model, self._idle, self._queue)
        self._async = any(i.is_async for i in model.instances)
        self._batching = model.spec.max_batch_size > 0
        if not self._async:
            self.call = inline_call(model, self)  # type: ignore[assignment,method-assign]
        self._wakeup = Wakeup()  # of the worker thread that serves the queue next
        self._shared = self._async or model.decoupled  # an instance may have several unanswered requests
        self._runner = BatchRunner(model, self._lock)

    # -- in the background -------------------------------------------------------------------------

    def call(self, parent: Execution, request: InferenceRequest) -> InferenceResponse:
        """Serve a request to an async model, and wait for its answer."""
        ticket = Ticket(
            self._model, taken_over(request) if ARGUMENTS_STAY else request, parent, copy_context()
        )
        del request  # whoever holds it could still answer it
        return self.call_queued(parent, ticket)

    def call_queued(self, parent: Execution, ticket: Ticket) -> InferenceResponse:
        """Serve a request that has to wait, or that does not run on its caller's thread."""
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
                ticket.queued = True
                self._queue.append(ticket)  # in one step: it is accepted, or not
        if closed:
            ticket.pass_on()
        elif self._idle:
            self.wake()

    def wake(self) -> None:
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
            found = self._take(instance) if self._queue else None
            if found is not None:
                ticket = self._queue.popleft()
                self._hand(found, ticket)
                more = bool(self._queue and self._idle)
            else:
                more = instance is not None and bool(self._queue and self._idle)
                told = self._told() if self._watch else ()
        if more:
            self.wake()
        for tell in told:
            tell()
        return None if found is None else (found, ticket)

    def _take(self, instance: Instance | None) -> Instance | None:
        """Take an idle instance, or just this one; None where it is at work."""
        if instance is not None:
            return instance if self._taken(instance) else None
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _hand(self, instance: Instance, ticket: Ticket) -> None:
        """An instance that has been taken has its next request; the lock is held."""
        ticket.queued = False
        self._open.add(ticket)
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
            if not ticket.queued or ticket not in self._queue:
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
        execution = SendingExecution(model.server, model, ticket.parent)
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
                response = answer(
                    returned, 0, ticket.requested, True, model.outputs, instance.name, ticket.track
                )
                if response._warnings:
                    response = with_warnings(response, model, execution, ticket.parent)
            else:
                box = [returned]
                del request, returned
                self._runner.deliver(execution, box)
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
                self._open.add(following)
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
            self.wake()
        if self._watch:
            self._tell()

    def _look(self) -> None:
        if self._queue:
            self.wake()


may_be_interrupted(DefaultScheduler._serve.__code__)
