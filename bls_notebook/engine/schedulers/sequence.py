"""The sequence batcher: requests of a sequence go to one instance, in order (config `sequence_batching`).

`Sequences` decides which sequence has which slot. It uses no locks, threads or clock (times are arguments, in
nanoseconds). Guarantees: a sequence has one slot until it ends, and its steps keep their order. A slot serves one
sequence at a time. Waiting sequences get slots in the order of arrival. A sequence that is idle for too long, or whose
waiting step is cancelled, ends and frees its slot. A retiring instance keeps its sequences until they end.

Guarantees of the scheduler, besides those of `BatchScheduler`: at most one request of a sequence runs at a time.
*Direct* gives a sequence the same position in every batch; an empty position before the last request gets a null
request (READY is false). *Oldest* forms batches like the dynamic batcher. An iterative sequence ends when its request
is not rescheduled. Mirrors core/src/sequence_batch_scheduler/sequence_batch_scheduler.cc.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from bls_notebook.engine import observer
from bls_notebook.engine.batch_runner import PendingAnswers, take_request
from bls_notebook.engine.core.hash_order import as_received
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.error_responses import cancelled_response, error_response
from bls_notebook.engine.errors import running
from bls_notebook.engine.tensors.handover import hand_over
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.clock import Clock
from bls_notebook.pb_utils.errors import ErrorCode
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from .batch_scheduler import BatchScheduler, Ordering
from .dynamic import BatchQueue, BatchRules, ShapeKey, Waiting, form, rows_in_batch
from .sequence_controls import END, START, Controls, initial_states, null_request, with_inputs


@dataclass(eq=False)
class SequenceStep:
    """One request of a sequence."""

    item: Any
    sequence: int | str  # the correlation ID
    end: bool = False
    key: Hashable = None  # only steps with equal keys share a batch
    since: int = 0
    gone: bool = False  # withdrawn while it waited; the sequence ends when it reaches this step


@dataclass(eq=False)
class Slot:
    """A position in the batches of an instance, for one sequence at a time."""

    place: int  # number of the instance
    number: int  # position in its batches
    queue: deque[SequenceStep | None] = field(default_factory=deque)  # None ends the sequence
    busy: bool = False  # whether a step is queued for a batch or running (for the oldest strategy)


@dataclass(eq=False)
class _Backlog:
    """The steps of one sequence that has no slot yet."""

    steps: deque[SequenceStep] = field(default_factory=deque)
    expires: int | None = None


class Sequences:
    """The sequences of one model version, whose instances are the *places*, each with `slots` slots.

    A sequence ends after `idle` ns without a request. `placed` is called with each step that gets a slot.
    """

    def __init__(
        self, places: int, slots: int, idle: int, placed: Callable[[SequenceStep, Slot], None] = lambda *_: None
    ) -> None:
        self._per_place = slots
        self.next_place = 0
        self.slots: dict[int, list[Slot]] = {}
        self._retiring: dict[int, int] = {}  # number of slots in use, by retiring place
        self.dropped: list[SequenceStep] = []  # steps of cancelled sequences, which the scheduler must answer
        self._idle = idle
        self._placed = placed
        self._ready: list[tuple[int, int]] = []  # a heap: low slot numbers first, so that batches are short
        self._owned: dict[int | str, Slot] = {}
        self._backlog: deque[_Backlog] = deque()
        self._waiting: dict[int | str, _Backlog] = {}
        self._seen: dict[int | str, int] = {}
        for _ in range(places):
            self.add_place()

    def add_place(self) -> list[Slot]:
        """Add an instance, numbered `next_place`; waiting sequences get its slots."""
        place, self.next_place = self.next_place, self.next_place + 1
        slots = self.slots[place] = [Slot(place, number) for number in range(self._per_place)]
        for slot in slots:
            self.release(slot)
        return slots

    def retire(self, place: int) -> None:
        """Assign no more sequences to the slots of an instance."""
        self._retiring[place] = self._per_place - sum(of == place for _, of in self._ready)
        self._ready = [(number, of) for number, of in self._ready if of != place]
        heapq.heapify(self._ready)

    def retired(self, place: int) -> bool:
        """Return whether a retiring instance has no slot in use."""
        return self._retiring.get(place) == 0

    def forget_place(self, place: int) -> None:
        del self.slots[place], self._retiring[place]

    def enter(self, step: SequenceStep, start: bool, now: int, timeout: int = 0) -> bool:
        """Queue a step; return False for a step of an unknown sequence that is not its `start`.

        `timeout`: how long (ns) this step lets its sequence wait for a slot; 0 for no limit.
        """
        sequence = step.sequence
        slot, backlog = self._owned.get(sequence), self._waiting.get(sequence)
        if not start and slot is None and backlog is None:
            return False
        self._seen[sequence] = now
        if slot is None and backlog is None and self._ready:
            number, place = heapq.heappop(self._ready)
            slot = self._owned[sequence] = self.slots[place][number]
        if slot is not None:
            if step.end:
                self._forget(sequence)
            slot.queue.append(step)
            self._placed(step, slot)
            return True
        if backlog is None:
            backlog = self._waiting[sequence] = _Backlog()
            self._backlog.append(backlog)
        if timeout and (backlog.expires is None or now + timeout < backlog.expires):
            backlog.expires = now + timeout
        backlog.steps.append(step)
        if step.end:
            self._forget(sequence)
        return True

    def _forget(self, sequence: int | str) -> None:
        self._owned.pop(sequence, None)
        self._waiting.pop(sequence, None)
        self._seen.pop(sequence, None)

    def finish(self, sequence: int | str) -> Slot | None:
        """End a sequence after its waiting steps; return its slot, or None."""
        slot = self._owned.get(sequence)
        if slot is not None:
            self._forget(sequence)
            slot.queue.append(None)
        return slot

    def front(self, slot: Slot) -> SequenceStep | None:
        """Return the first waiting step of a slot, after ending every sequence whose end comes before it."""
        while slot.queue:
            step = slot.queue[0]
            if step is not None and not step.gone:
                return step
            slot.queue.popleft()
            if step is not None and self._owned.get(step.sequence) is slot:
                self._forget(step.sequence)
            self.release(slot)
        return None

    def release(self, slot: Slot) -> None:
        """Free a slot: drop its remaining steps, and give it to the next waiting sequence."""
        self.dropped += [s for s in slot.queue if s is not None and not s.gone]
        slot.queue.clear()
        if slot.place in self._retiring:
            self._retiring[slot.place] -= 1
            return
        while self._backlog:
            backlog = self._backlog.popleft()
            last = backlog.steps[-1].sequence
            open_ended = self._waiting.get(last) is backlog
            if any(s.gone for s in backlog.steps):
                if open_ended:
                    self._forget(last)
                self.dropped += [s for s in backlog.steps if not s.gone]
                continue
            if open_ended:
                del self._waiting[last]
                self._owned[last] = slot
            slot.queue.extend(backlog.steps)
            for step in backlog.steps:
                self._placed(step, slot)
            return
        heapq.heappush(self._ready, (slot.number, slot.place))

    def reap(self, now: int) -> list[Slot]:
        """End the sequences that were idle for too long; return their slots."""
        late = [s for s in self._owned if now - self._seen[s] >= self._idle]
        return [slot for slot in map(self.finish, late) if slot is not None]

    def expire(self, now: int) -> list[SequenceStep]:
        """Remove and return the steps of sequences that waited too long for a slot."""
        out: list[SequenceStep] = []
        for backlog in [b for b in self._backlog if b.expires is not None and now >= b.expires]:
            self._backlog.remove(backlog)
            sequence = backlog.steps[-1].sequence
            if self._waiting.get(sequence) is backlog:
                self._forget(sequence)
            out += [s for s in backlog.steps if not s.gone]
        return out

    def next_time(self) -> int | None:
        """Return the time of the next idle timeout or expiry; None for never."""
        times = [self._seen[s] + self._idle for s in self._owned]
        times += [b.expires for b in self._backlog if b.expires is not None]
        return min(times, default=None)


class _Turn:
    """Receives the responses of one run of a request that an iterative sequence may run again."""

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket
        self.over = False  # True once the request is rescheduled: then a dropped sender is no loss

    def is_cancelled(self) -> bool:
        return self._ticket.is_cancelled()

    def send(self, response: InferenceResponse | None, final: bool) -> None:
        self._ticket.send(response, final)

    def drop_sender(self) -> None:
        if not self.over:
            self._ticket.drop_sender()


class SequenceBatcher(BatchScheduler):
    """Sequence batcher of one model version; see `BatchScheduler` for the parameters."""

    def __init__(self, model: LoadedModel, clock: Clock | None = None) -> None:
        spec = model.spec
        config = spec.config.sequence_batching
        super().__init__(model, clock, config.iterative_sequence)
        self._iterative = config.iterative_sequence
        self._next_id = 1
        slots = max(1, spec.max_batch_size)
        self._rules: BatchRules | None = None  # for oldest; None for direct
        if config.HasField("oldest"):
            slots = config.oldest.max_candidate_sequences or slots
            delay = config.oldest.max_queue_delay_microseconds * 1000
            self._rules = BatchRules(max(1, spec.max_batch_size), frozenset(config.oldest.preferred_batch_size), delay)
        self._delay = config.direct.max_queue_delay_microseconds * 1000
        self._utilization = np.float32(config.direct.minimum_slot_utilization)
        self._sequences = Sequences(0, slots, config.max_sequence_idle_microseconds * 1000, self._placed)
        self._instances: dict[int, Instance] = {}  # by their places in `Sequences`
        self._place: dict[Instance, int] = {}
        self._issued: dict[int, BatchQueue] = {}  # for oldest: the steps ready for a batch, by place
        self._orderings: WeakKeyDictionary[Instance, Ordering] = WeakKeyDictionary()
        self._ordered = config.oldest.preserve_ordering
        self._steps: dict[Ticket, SequenceStep] = {}  # of waiting and running requests
        self._slot_of: dict[Ticket, Slot] = {}  # of requests whose sequence has a slot
        self._turns: dict[Ticket, _Turn] = {}  # of running requests of iterative sequences
        self._wait_until: dict[Instance, int] = {}
        self._key = ShapeKey(spec)
        self._controls = Controls(spec)
        self._states = initial_states(spec, Path(model.directory).parent)
        for instance in model.instances:
            self._add_instance(instance)

    def _add_instance(self, instance: Instance) -> None:
        place = self._place[instance] = self._sequences.next_place
        self._instances[place] = instance
        self._issued[place] = BatchQueue()
        if self._ordered:
            self._orderings[instance] = Ordering()
        now = self._clock.now()
        for slot in self._sequences.add_place():
            self._issue(slot, now)

    def _begin_retiring(self, instance: Instance) -> None:
        self._sequences.retire(self._place[instance])

    def _needed(self, instance: Instance) -> bool:
        place = self._place[instance]
        return not self._sequences.retired(place) or len(self._issued[place]) > 0

    def _remove_instance(self, instance: Instance) -> None:
        super()._remove_instance(instance)
        self._wait_until.pop(instance, None)
        place = self._place.pop(instance)
        del self._instances[place], self._issued[place]
        self._sequences.forget_place(place)

    def _accept(self, ticket: Ticket, now: int) -> InferenceResponse | None:
        request = ticket.request
        assert request is not None
        options = request._options
        name = self._model.name
        if rows_in_batch(self._model.spec, request) > 1:
            problem = (
                f"inference request to model '{name}' must specify batch-size 1 due to requirements of sequence batcher"
            )
            return error_response(running(name, problem), ErrorCode.INVALID_ARG)
        if not options.correlation_id:
            if not self._iterative:
                problem = f"inference request to model '{name}' must specify a non-zero or non-empty correlation ID"
                return error_response(running(name, problem), ErrorCode.INVALID_ARG)
            request._options = replace(options, correlation_id=self._next_id, flags=START)
            self._next_id += 1
        return self._enter_sequence(ticket, request, now)

    def _enter_sequence(self, ticket: Ticket, request: InferenceRequest, now: int) -> InferenceResponse | None:
        options = request._options
        sequence, flags, timeout = options.correlation_id, options.flags, options.timeout * 1000
        step = SequenceStep(ticket, sequence, bool(flags & END), self._key.of(request), now)
        self._steps[ticket] = step
        if not self._sequences.enter(step, bool(flags & START), now, timeout):
            del self._steps[ticket]
            problem = (
                f"inference request for sequence {sequence} to model '{self._model.name}' must specify the START flag "
                "on the first request of the sequence"
            )
            return error_response(running(self._model.name, problem), ErrorCode.INVALID_ARG)
        slot = self._slot_of.get(ticket)
        if slot is None:
            ticket.expires = timeout > 0
        else:
            self._issue(slot, now)
        return None

    def _placed(self, step: SequenceStep, slot: Slot) -> None:
        ticket: Ticket = step.item
        ticket.bound = (self._instances[slot.place],)
        ticket.expires = False
        self._slot_of[ticket] = slot

    def _remove(self, ticket: Ticket) -> None:
        now = self._clock.now()
        step, slot = self._forget(ticket)
        if slot is not None and self._issued[slot.place].remove(ticket):
            slot.busy = False
            if self._iterative and step is not None:
                self._sequences.finish(step.sequence)
        elif step is not None:
            step.gone = True
        if slot is not None:
            self._issue(slot, now)

    def _forget(self, ticket: Ticket) -> tuple[SequenceStep | None, Slot | None]:
        return self._steps.pop(ticket, None), self._slot_of.pop(ticket, None)

    def _issue(self, slot: Slot, now: int) -> None:
        """Advance a slot's queue: end finished sequences; for oldest, queue the next step for a batch."""
        if slot.busy:
            return
        step = self._sequences.front(slot)
        if step is None or self._rules is None:
            return
        slot.queue.popleft()
        slot.busy = True
        self._issued[slot.place].add(Waiting(step.item, 1, step.key, now))
        if step.end:
            self._sequences.release(slot)

    def _pick(self, instance: Instance, now: int, take: bool, answers: PendingAnswers) -> list[Ticket]:
        self._wait_until.pop(instance, None)
        place = self._place[instance]
        if self._rules is None:
            return self._pick_direct(instance, self._sequences.slots[place], now, take, answers)
        queue = self._issued[place]
        plan = form(queue, now, self._rules)
        if plan.wait_until is not None:
            self._wait_until[instance] = plan.wait_until
        if not plan.count:
            return []
        if not take:
            return [next(iter(queue)).item]
        batch = [entry.item for entry in queue.take(plan.count)]
        if self._ordered:
            self._orderings[instance].enrol(batch)
        return batch

    def _pick_direct(
        self, instance: Instance, slots: list[Slot], now: int, take: bool, answers: PendingAnswers
    ) -> list[Ticket]:
        fronts = [self._sequences.front(slot) for slot in slots]
        self._drop(answers)
        ready = [step for step in fronts if step is not None]
        if not ready:
            return []
        if self._delay and self._utilization:
            until = min(step.since for step in ready) + self._delay
            used = np.float32(len(ready)) / np.float32(len(slots))  # float32, like the configuration
            if now < until and used < self._utilization:
                self._wait_until[instance] = until
                return []
        first = ready[0]
        like: InferenceRequest | None = first.item.request
        if not take or like is None:
            return [first.item]
        batch: list[Ticket] = []
        while fronts[-1] is None:
            fronts.pop()
        for slot, step in zip(slots, fronts, strict=False):
            if step is None or step.key != first.key:
                batch.append(self._null(like))
                continue
            slot.queue.popleft()
            batch.append(step.item)
            if step.end:
                self._sequences.release(slot)
        self._drop(answers)
        return batch

    def _null(self, like: InferenceRequest) -> Ticket:
        extra = self._controls.of(0, 0, ready=False) + hand_over(self._states, False)
        ticket = Ticket(self._model, null_request(like, extra), None, None)
        ticket.discarded = True
        return ticket

    def _prepare(self, ticket: Ticket) -> InferenceRequest | None:
        request = ticket.request
        if ticket.context is None or request is None:
            return take_request(ticket)
        options = request._options
        extra = self._controls.of(options.flags, options.correlation_id) + hand_over(self._states, False)
        if not self._iterative:
            request._inputs = as_received(request._inputs, extra)
            return take_request(ticket)
        # The request may be run again with its original tensors, so the model gets copies.
        inputs = hand_over(request._inputs, False)
        if (watching := observer.active) is not None:
            watching.repeated(ticket.observed, request._inputs, inputs)
        request = with_inputs(request, as_received(inputs, extra))
        request._answerable = turn = _Turn(ticket)
        with self._lock:
            self._turns[ticket] = turn
        return request

    def _note_rescheduled(self, ticket: Ticket) -> None:
        with self._lock:
            turn = self._turns.get(ticket)
            if turn is not None:  # None for a null request
                turn.over = True

    def _finish_batch(self, tickets: Sequence[Ticket], again: list[Ticket], now: int, answers: PendingAnswers) -> None:
        for ticket in tickets:
            step, slot = self._forget(ticket)
            self._turns.pop(ticket, None)
            if ticket not in again:
                ticket.request = None
                if self._iterative and step is not None and not step.end:
                    self._sequences.finish(step.sequence)
            if slot is not None:
                slot.busy = False
                self._issue(slot, now)
        for ticket in again:
            self._enter_again(ticket, now, answers)
        self._drop(answers)

    def _enter_again(self, ticket: Ticket, now: int, answers: PendingAnswers) -> None:
        """Queue a request that the model of an iterative sequence rescheduled."""
        request = ticket.request
        if request is None:
            return
        sequence = request._options.correlation_id
        if ticket.cancelled:
            self._sequences.finish(sequence)
            answers.append((ticket, cancelled_response(self._model.name)))
            return
        request._options = replace(request._options, flags=0)
        refusal = self._enter_sequence(ticket, request, now)
        if refusal is not None:
            answers.append((ticket, refusal))
            return
        ticket.queued = True
        self._queue.add(ticket)

    def _expire(self, now: int, answers: PendingAnswers) -> None:
        for slot in self._sequences.reap(now):
            self._issue(slot, now)
        for step in self._sequences.expire(now):
            self._forget(step.item)
            self._leave((step.item,))
            message = "timeout of the corresponding sequence has been expired"
            answers.append((step.item, error_response(message, ErrorCode.UNAVAILABLE)))
        self._drop(answers)

    def _drop(self, answers: PendingAnswers) -> None:
        """Answer the steps of cancelled sequences."""
        dropped, self._sequences.dropped = self._sequences.dropped, []
        for step in dropped:
            self._forget(step.item)
            self._leave((step.item,))
            answers.append((step.item, cancelled_response(self._model.name)))

    def _wake_at(self, now: int) -> int | None:
        # With an empty queue, the times belong to requests that were withdrawn.
        times = [t for i, t in self._wait_until.items() if i in self._idle] if self._queue else []
        next_time = self._sequences.next_time()
        return min(times if next_time is None else [*times, next_time], default=None)

    def _ordering_of(self, ticket: Ticket) -> Ordering | None:
        return self._orderings[ticket.bound[0]] if self._ordered and ticket.bound else None
