"""`BatchScheduler`: base of the dynamic batcher and the sequence batcher; `Ordering` keeps responses in order.

Guarantees: an instance runs one batch at a time (coroutines of a decoupled model share its loop). A batch is formed
when an instance begins it, so it can contain every request that has arrived by then. One alarm wakes the scheduler for
all delays and timeouts. Every accepted request is answered. Once closed, the scheduler accepts no request, and calls
`on_drained` when the last one has been answered. A retiring instance finishes its batch, and begins only requests that
no other instance may serve.

The scheduler's lock is held during all methods that a subclass overrides, except `_prepare` and `_note_rescheduled`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any

from bls_notebook.engine.batch_runner import BatchRunner, PendingAnswers, take_request
from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.rate_limiter import RateLimiter
from bls_notebook.engine.error_responses import cancelled_response
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.clock import Clock, NextAlarm, system_clock
from bls_notebook.engine.waiting.interrupts import need_room
from bls_notebook.pb_utils.errors import ErrorCode
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from .lifecycle import Lifecycle


class Ordering:
    """Keeps the responses of requests in the order of the requests."""

    def __init__(self) -> None:
        self._line: dict[Ticket, bool] = {}  # in order; True once the waiter of the request was notified
        self.releasing = False

    def enrol(self, tickets: Sequence[Ticket]) -> None:
        """Append requests; called before they run."""
        for ticket in tickets:
            if self._line and not self._is_awaited(ticket):
                ticket.held = True
            self._line[ticket] = False

    def _is_awaited(self, ticket: Ticket) -> bool:
        """Return whether code that serves a request in the line sent this one, and so waits for it."""
        execution: Execution | None = ticket.parent
        while execution is not None:
            if any(t.execution is execution for t in self._line):
                return True
            execution = execution.parent
        return False

    def settled(self, ticket: Ticket) -> None:
        """Remove a request that has its last response, unless it is the first in the line or withheld."""
        if not ticket.held and ticket in self._line and next(iter(self._line)) is not ticket:
            del self._line[ticket]

    def told(self, ticket: Ticket) -> None:
        """Record that the waiter of a request was notified of its last response, or will be at its release."""
        if ticket in self._line:
            self._line[ticket] = True

    def advance(self) -> Ticket | None:
        """Return a request to release, then call again; None if no other may be released."""
        while self._line:
            first = next(iter(self._line))
            if first.held:
                return first
            if not self._line[first]:
                return None
            del self._line[first]
        return None


WORK = object()  # posted to a home: batches may be ready
_REASONS = {ErrorCode.UNAVAILABLE: "REJECTED", ErrorCode.CANCELLED: "CANCELED"}


def _priority(instance: Instance) -> int:
    return 0 if instance.limited is None else instance.limited.scaled_priority


class BatchScheduler(Lifecycle):
    """Base of a model's dynamic or sequence batcher."""

    _keeps_cancelled = False

    def __init__(self, model: LoadedModel, clock: Clock | None = None, reschedules: bool = False) -> None:
        super().__init__(model)
        self._idle: list[Instance] = list(model.instances)[::-1]
        self._queue: set[Ticket] = set()
        self._clock = system_clock if clock is None else clock
        self._asked: set[Instance] = set()  # idle instances that will soon look for a batch
        self._reschedules = reschedules
        self._alarm = NextAlarm(self._clock, self._rings)
        self._async = any(i.is_async for i in model.instances)
        self._limiter: RateLimiter | None = model.server.rate_limiter
        self._runner = BatchRunner(model, self._lock, self._prepare, self._note_rescheduled if reschedules else None)

    # Decisions of a subclass.
    def _accept(self, ticket: Ticket, now: int) -> InferenceResponse | None:
        """Queue a request that arrived at `now`, or return the response that rejects it."""
        raise NotImplementedError

    def _pick(self, instance: Instance, now: int, take: bool, answers: PendingAnswers) -> list[Ticket]:
        """Return the batch for an idle instance, possibly empty; `take` removes it from the queue."""
        raise NotImplementedError

    def _expire(self, now: int, answers: PendingAnswers) -> None:
        """Answer requests that have waited too long."""
        raise NotImplementedError

    def _wake_at(self, now: int) -> int | None:
        """Return the time of the next expiry or delayed batch; None for never."""
        raise NotImplementedError

    def _finish_batch(self, tickets: Sequence[Ticket], again: list[Ticket], now: int, answers: PendingAnswers) -> None:
        """Handle the end of a batch; `again` are the tickets that the model rescheduled."""

    def _prepare(self, ticket: Ticket) -> InferenceRequest | None:
        """Return the request as the model receives it; the lock is not held."""
        return take_request(ticket)

    def _note_rescheduled(self, ticket: Ticket) -> None:
        """Handle a request that the model rescheduled, before the model releases it; the lock is not held."""

    def submit(self, ticket: Ticket) -> None:
        need_room()
        with self._lock:
            closed = self._closed
            refusal = None if closed else self._enter(ticket, self._clock.now())
        if closed:
            ticket.pass_on()
        elif refusal is not None:
            ticket.finish(refusal)
        elif ticket.cancelled and not self._keeps_cancelled and self.withdraw(ticket):
            ticket.finish(cancelled_response(self._model.name))
        else:
            self._look()

    def drop_cancelled(self, ticket: Ticket) -> bool:
        return self.withdraw(ticket)

    def _enter(self, ticket: Ticket, now: int) -> InferenceResponse | None:
        """Accept a ticket, or return the response that rejects it. Lock held."""
        self._open.add(ticket)
        try:
            refusal = self._accept(ticket, now)
        except BaseException:
            self._open.discard(ticket)
            self._remove(ticket)
            raise
        if refusal is None:
            ticket.queued = True
            self._queue.add(ticket)
        return refusal

    def _remove_instance(self, instance: Instance) -> None:
        self._asked.discard(instance)

    def _leave(self, batch: Sequence[Ticket]) -> None:
        for ticket in batch:
            ticket.queued = False
            self._queue.discard(ticket)

    def settled(self, ticket: Ticket) -> Callable[[], None] | None:
        if ticket.context is None:
            return None  # a null request
        ordering = self._ordering_of(ticket)
        if ordering is None:
            self._count_off(ticket)
            return None
        with self._lock:
            ordering.settled(ticket)
        return partial(self._release, ordering, ticket)

    def _ordering_of(self, ticket: Ticket) -> Ordering | None:
        """Return the ordering that a ticket belongs to, with preserve_ordering."""
        return None

    def _release(self, ordering: Ordering, ticket: Ticket) -> None:
        """Release the requests that need not wait for earlier ones any more: one thread at a time, in order."""
        with self._lock:
            ordering.told(ticket)
            releases, ordering.releasing = not ordering.releasing, True  # a releasing thread checks again
        while releases:
            with self._lock:
                following = ordering.advance()
                ordering.releasing = releases = following is not None
            if following is not None:
                following.release()
        self._count_off(ticket)

    def _count_off(self, ticket: Ticket) -> None:
        with self._lock:
            self._open.discard(ticket)
            if ticket.serving is not None:
                ticket.serving.discard(ticket)
        if self._watch:
            self._notify()

    def _look(self) -> None:
        """Start idle instances that have work, answer expired requests, and set the alarm."""
        answers: PendingAnswers = []
        work: list[Instance] = []
        with self._lock:
            now = self._clock.now()
            self._expire(now, answers)
            if self._queue:
                wanted = self._most_asked()
                idle = self._idle[::-1]
                if self._limiter is not None:
                    idle.sort(key=_priority)
                for instance in idle:
                    if len(work) >= wanted:
                        break
                    if instance not in self._asked and self._pick(instance, now, False, answers):
                        work.append(instance)
                self._asked.update(work)
            self._set_alarm(now)
        self._give(answers)
        if self._watch:
            self._notify()
        for instance in work:
            if instance.limited is None:
                self._post(instance)
            else:
                instance.limited.limiter.stage(instance.limited, partial(self._post, instance))

    def _post(self, instance: Instance) -> None:
        """Let an instance take a batch."""
        if instance.is_async:
            instance.loop.post(partial(self._begin, instance))
        else:
            instance.home.post(WORK)

    def _most_asked(self) -> int:
        """Return how many more idle instances may look for a batch. Lock held."""
        return len(self._queue)

    def _give_back(self, instance: Instance) -> None:
        """Free an instance after each batch, so that the rate limiter decides which instance runs next."""
        with self._lock:
            self._free(instance)
        self._look()
        if self._limiter is not None:
            self._limiter.attempt()

    def _take(self, instance: Instance, held: bool) -> list[Ticket]:
        """Return the next batch of an idle or `held` instance; without one, the instance is idle."""
        answers: PendingAnswers = []
        batch: list[Ticket] = []
        with self._lock:
            self._asked.discard(instance)
            now = self._clock.now()
            self._expire(now, answers)
            if held or self._taken(instance):
                serves = instance not in self._leaving or self._needed(instance)
                batch = self._pick(instance, now, True, answers) if serves else []
                instance.holder = batch[0] if batch else None
                self._leave(batch)
                if not batch:
                    self._free(instance)
                elif self._model.decoupled:
                    self._note_serving(instance, batch)
            self._set_alarm(now)
        self._give(answers)
        if self._watch:
            self._notify()
        if self._limiter is not None and not batch:
            self._limiter.attempt()
        return batch

    @staticmethod
    def _note_serving(instance: Instance, batch: Sequence[Ticket]) -> None:
        for ticket in batch:
            if ticket.context is not None:  # not a null request
                if ticket.serving is not None:
                    ticket.serving.discard(ticket)
                ticket.serving = instance.serving
                ticket.serving.add(ticket)

    def _give(self, answers: PendingAnswers) -> None:
        """Answer requests that never ran; count them as failed, with Triton's reasons."""
        if answers:
            now = perf_counter_ns()
            with self._lock:
                for ticket, response in answers:
                    error = response._error
                    reason = "OTHER" if error is None else _REASONS.get(error._code, "OTHER")
                    self._model.statistics.failed(now - ticket.arrived, reason)
        for ticket, response in answers:
            ticket.finish(response)

    def _end(self, tickets: Sequence[Ticket], again: list[Ticket]) -> None:
        answers: PendingAnswers = []
        with self._lock:
            self._finish_batch(tickets, again, self._clock.now(), answers)
        self._give(answers)

    def _serve(self, instance: Instance, work: Any) -> None:
        """Run batches at home until none is ready."""
        held, is_shared = False, self._model.decoupled and instance.limited is None
        while not (is_shared and self._gives_way(instance, held)):
            batch = self._take(instance, held)
            if is_shared and self._queue:
                self._look()  # others may have given way to this instance
            if not batch:
                return
            held = True
            self._end(batch, self._runner.run(instance, batch))
            if instance.limited is not None:
                self._give_back(instance)
                return

    def _gives_way(self, instance: Instance, held: bool) -> bool:
        """Return whether an instance that will begin at once has fewer unanswered requests; then this one is idle.

        The instances of a server are processes that begin at the same time; here their threads take turns.
        """
        with self._lock:
            self._asked.discard(instance)
            if min((len(i.serving) for i in self._asked), default=len(instance.serving)) >= len(instance.serving):
                return False
            if held:
                self._free(instance)
        if self._watch:
            self._notify()
        return True

    def _begin(self, instance: Instance, held: bool = False) -> None:
        """Begin batches of an async model, on its loop's thread, until one occupies the instance."""
        while batch := self._take(instance, held):
            held = True
            if not self._runner.begin(instance, batch, self._ended):
                self._end(batch, [])
            elif not self._model.decoupled:
                return
            elif not self._reschedules:  # coroutines share the loop; their requests are released at once
                self._end(batch, [])
            if instance.limited is not None:
                self._give_back(instance)
                return

    def _ended(self, instance: Instance, tickets: Sequence[Ticket], again: list[Ticket]) -> None:
        """Handle the end of a coroutine; called on the loop's thread."""
        if not self._model.decoupled:
            self._end(tickets, again)
            if instance.limited is None:
                self._begin(instance, True)
            else:
                self._give_back(instance)
        elif self._reschedules:  # the rescheduled requests are known only now
            self._end(tickets, again)
            self._look()

    def _set_alarm(self, now: int) -> None:
        if self._closed and not self._open:
            return  # no request waits, and an alarm would keep the model in memory
        when = self._wake_at(now)
        if when is not None:
            self._alarm.at_latest(when)

    def _rings(self) -> None:
        with self._lock:
            self._alarm.rung()
        self._look()

    def _drained(self) -> None:
        self._alarm.cancel()
