"""The default scheduler: passes one request at a time to an idle instance, in the order of arrival.

Guarantees: an instance runs one `execute` at a time. No request overtakes the queue. Every accepted request is
answered. Once closed, the scheduler accepts no request, and calls `on_drained` when the last one has been answered. A
retiring instance finishes its requests and begins no others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial

from bls_notebook.engine.batch_runner import BatchRunner
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.home_call import home_call
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.interrupts import need_room

from .lifecycle import Lifecycle


class DefaultScheduler(Lifecycle):
    """Default scheduler of one model version."""

    def __init__(self, model: LoadedModel) -> None:
        super().__init__(model)
        self._idle: deque[Instance] = deque(reversed(model.instances))
        self._queue: deque[Ticket] = deque()
        self._async = any(i.is_async for i in model.instances)
        self._shared = self._async or model.decoupled  # an instance may have several unanswered requests
        self._posted: set[Instance] = set()  # instances at whose home a request waits to begin
        self._runner = BatchRunner(model, self._lock)
        if not self._async:
            self.call, self._run = home_call(model, self, self._runner)  # type: ignore[assignment, method-assign]

    def submit(self, ticket: Ticket) -> None:
        need_room()
        with self._lock:
            closed = self._closed
            if not closed:
                ticket.queued = True
                self._queue.append(ticket)
        if closed:
            ticket.pass_on()
        else:
            self._look()

    def _look(self) -> None:
        """Give the queue's requests to idle instances."""
        while self._queue and self._idle:
            with self._lock:
                if self._posted and self._is_early():
                    return
                instance = self._least_busy()
                ticket = None if instance is None else self._assign(instance)
            if instance is not None and ticket is not None:
                self._post(instance, ticket)

    def _is_early(self) -> bool:
        """Return whether an instance that will begin at once has fewer unanswered requests than each idle one.

        The instances of a server are processes that begin at the same time; here their threads take turns, and the
        first one would take the requests of the others. Lock held.
        """
        return min(len(i.serving) for i in self._posted) < min((len(i.serving) for i in self._idle), default=0)

    def _least_busy(self) -> Instance | None:
        """Take the idle instance with the fewest unanswered requests; None without one. Lock held."""
        if not self._shared:
            try:
                return self._idle.pop()
            except IndexError:
                return None
        instance = min(reversed(list(self._idle)), key=lambda i: len(i.serving), default=None)
        return instance if instance is not None and self._taken(instance) else None

    def _post(self, instance: Instance, ticket: Ticket) -> None:
        if instance.is_async:
            instance.loop.post(partial(self._begin, instance, ticket))
            return
        if self._shared:
            with self._lock:
                self._posted.add(instance)
        instance.home.post(ticket)

    def _assign(self, instance: Instance) -> Ticket | None:
        """Return the next request for an instance that was taken; without one, make it idle. Lock held."""
        if not self._queue or instance in self._leaving:
            self._free(instance)
            return None
        ticket = self._queue.popleft()
        if self._queue:
            self._model.statistics.waited += 1
        ticket.queued = False
        self._open.add(ticket)
        instance.holder = ticket
        if self._shared:
            ticket.serving = instance.serving
            ticket.serving.add(ticket)
        return ticket

    def settled(self, ticket: Ticket) -> None:
        self._open.discard(ticket)
        if ticket.serving is not None:
            ticket.serving.discard(ticket)
        if self._watch:
            self._notify()

    def _serve(self, instance: Instance, ticket: Ticket) -> None:
        """Run a request at home."""
        if self._shared:
            with self._lock:
                self._posted.discard(instance)
            self._look()
        if self._shared or not self._run(instance, ticket):
            self._runner.run(instance, (ticket,), partial(self._free, instance))
        if self._watch:
            self._notify()
        if self._queue:
            self._look()

    def _begin(self, instance: Instance, ticket: Ticket) -> None:
        """Begin a request of an async model in the instance's loop, and, if it has ended at once, the next."""
        following: Ticket | None = ticket
        while following is not None:
            under_way = self._runner.begin(instance, (following,), self._ended)
            if self._model.decoupled:  # its requests share the loop; another loop may have less to do
                with self._lock:
                    self._free(instance)
                break
            if under_way:
                return
            with self._lock:
                following = self._assign(instance)
        if self._watch:
            self._notify()
        if self._queue:
            instance.loop.post(self._look)  # later: the loops of other instances begin first, as a server's do

    def _ended(self, instance: Instance, tickets: Sequence[Ticket], again: list[Ticket]) -> None:
        if not self._model.decoupled:
            with self._lock:
                ticket = self._assign(instance)
            if self._watch:
                self._notify()
            if ticket is not None:
                self._begin(instance, ticket)
