"""The default scheduler: passes one request at a time to an idle instance, in the order of arrival.

Guarantees: an instance runs one `execute` at a time. No request overtakes the queue. A synchronous request to an idle
model runs on its caller's thread. Every accepted request is answered. Once closed, the scheduler accepts no request,
and calls `on_drained` when the last one has been answered. A retiring instance finishes its requests and begins no
others.

No exception at any point can lose an instance. A caller's thread takes an instance only to run its own request; taking
it and giving it back are single steps in C. The sender of a request that has to wait only puts it into the queue. The
engine's own threads take instances for the queue, because their stacks are short and no signal interrupts them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial

from bls_notebook.engine.batch_runner import BatchRunner
from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.inline import inline_call
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.deadlock import first_response
from bls_notebook.engine.waiting.interrupts import need_room
from bls_notebook.engine.waiting.worker_threads import Wakeup, start_in_thread
from bls_notebook.pb_utils.response import InferenceResponse

from .lifecycle import Lifecycle


class DefaultScheduler(Lifecycle):
    """Default scheduler of one model version."""

    def __init__(self, model: LoadedModel) -> None:
        super().__init__(model)
        # A deque, because returning an instance to it allocates no memory.
        self._idle: deque[Instance] = deque(reversed(model.instances))
        self._queue: deque[Ticket] = deque()
        self._async = any(i.is_async for i in model.instances)
        if not self._async:
            self.call = inline_call(model, self, self.wake)  # type: ignore[assignment,method-assign]
        self._wakeup = Wakeup()  # of the worker thread that serves the queue next
        self._shared = self._async or model.decoupled  # an instance may have several unanswered requests
        self._runner = BatchRunner(model, self._lock)

    def call_queued(self, parent: Execution, ticket: Ticket) -> InferenceResponse:
        """Serve a request that has to wait, or that does not run on its caller's thread."""
        need_room()
        parent.note_blocking(self._model.name)
        parent.adopt(ticket)
        self.submit(ticket)
        return first_response(ticket)

    def submit(self, ticket: Ticket) -> None:
        need_room()
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
        """Make an engine thread serve the queue, and check whether `close` is complete."""
        if not self._async:
            if self._wakeup.taken:
                wakeup = Wakeup(self._come)
                start_in_thread(wakeup)
                self._wakeup = wakeup
            return
        instance = min(list(self._idle), key=lambda i: len(i.serving), default=None)
        if instance is not None:
            instance.wake(self._turn)

    def _begin_next(self, instance: Instance | None) -> tuple[list[Instance], list[Ticket]]:
        """Take the given instance, or any, and the next request for it; see `_come`."""
        held: list[Instance] = []
        line: list[Ticket] = []
        with self._lock:
            taken = self._take(instance) if self._queue else None
            if taken is not None:
                held.append(taken)
                self._assign(held, line)
            more_work = (line or instance is not None) and self._queue and self._idle
        if more_work:
            self.wake()
        if self._watch:
            self._notify()
        return held, line

    def _take(self, instance: Instance | None) -> Instance | None:
        if instance is not None:
            return instance if self._taken(instance) else None
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def settled(self, ticket: Ticket) -> None:
        self._open.discard(ticket)
        if ticket.serving is not None:
            ticket.serving.discard(ticket)
        if self._watch:
            self._notify()

    def _come(self) -> None:
        """Serve the queue on a worker thread, and on more threads while more instances are idle."""
        # The instance that this thread has to give back, and the next request for it.
        held, line = self._begin_next(None)
        assign = partial(self._assign, held, line)
        while line:
            self._runner.run(held[0], (line.pop(),), assign)
            if held and not line:  # no request could run
                self._next(held, line)
            elif self._watch:
                self._notify()

    def _next(self, held: list[Instance], line: list[Ticket]) -> None:
        """Release an instance, or keep it for the next request."""
        with self._lock:
            self._assign(held, line)
        if self._watch:
            self._notify()

    def _assign(self, held: list[Instance], line: list[Ticket]) -> None:
        """Move the instance in `held` to idle, or the next queued request to `line`; lock held."""
        instance = held[0]
        if self._queue and instance not in self._leaving:
            ticket = self._queue.popleft()
            if self._queue:
                self._model.statistics.waited += 1
            line.append(ticket)
            ticket.queued = False
            self._open.add(ticket)
            instance.holder = ticket
            if self._shared:
                ticket.serving = instance.serving
                ticket.serving.add(ticket)
        else:
            instance.holder = None
            self._idle.append(held.pop())

    def _turn(self, instance: Instance) -> None:
        self._begin(*self._begin_next(instance))

    def _begin(self, held: list[Instance], line: list[Ticket]) -> None:
        """Begin requests of an async model until one occupies the instance or none is queued."""
        while line:
            under_way = self._runner.begin(held[0], (line.pop(),), self._ended)
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
        """Make an instance idle. It does not take the next request, because another loop may have less to do."""
        with self._lock:
            instance.holder = None
            self._idle.append(instance)
        if self._queue:
            self.wake()
        if self._watch:
            self._notify()

    def _look(self) -> None:
        if self._queue:
            self.wake()
