"""The sequence batcher: requests of a sequence go to one instance, in order (config `sequence_batching`).

Guarantees: those of `BatchScheduler`; no two requests of a sequence are under way at a time; *direct*
gives a sequence the same position in every batch, and hands over a null request (its READY is false) for each
position before the last that has no request; *oldest* forms batches of the sequences that have one, as
the dynamic batcher does; an iterative sequence ends when its request is not to be seen again, and a sender
that is dropped with one run of it means nothing while a later run can answer. Who has which slot is decided
in `sequences`, what the model sees of it in `controls`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np

from bls_notebook.devices import allocation_log
from bls_notebook.engine import messages
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.delivering import Answers
from bls_notebook.engine.failures import cancelled_response, error_response
from bls_notebook.engine.runner import take_request
from bls_notebook.engine.tensors.handover import hand_over
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.threads import start_in_thread
from bls_notebook.pb_utils.errors import ErrorCode
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from .base import BatchScheduler
from .batch_queue import BatchQueue, BatchRules, Waiting, form
from .clock import Clock
from .controls import END, START, Controls, initial_states, null_request, with_inputs
from .dynamic import ShapeKey, rows_in_batch
from .ordering import Ordering
from .sequences import Sequences, SequenceStep, Slot


class _Turn:
    """Takes the answers of one run of a request of an iterative sequence, which may be run again."""

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket
        self.over = False  # a later run answers: that this run's sender is dropped means nothing

    @property
    def cancelled(self) -> bool:
        """Whether the requester has given up waiting."""
        return self._ticket.cancelled

    def send(self, response: InferenceResponse | None, final: bool) -> None:
        """Take a response."""
        self._ticket.send(response, final)

    def drop_sender(self) -> None:
        """Nobody can answer this run any more."""
        if not self.over:
            self._ticket.drop_sender()


class SequenceBatcher(BatchScheduler):
    """Sequence batcher of one model version; see `BatchScheduler` for the parameters."""

    def __init__(
        self,
        model: LoadedModel,
        clock: Clock | None = None,
        start: Callable[[Callable[[], None]], None] = start_in_thread,
    ) -> None:
        spec = model.spec
        config = spec.config.sequence_batching
        super().__init__(model, clock, start, config.iterative_sequence)
        self._iterative = config.iterative_sequence
        self._next_id = 1
        slots = max(1, spec.max_batch_size)
        self._rules: BatchRules | None = None  # of oldest; None for direct
        if config.HasField("oldest"):
            slots = config.oldest.max_candidate_sequences or slots
            delay = config.oldest.max_queue_delay_microseconds * 1000
            preferred = frozenset(config.oldest.preferred_batch_size)
            self._rules = BatchRules(max(1, spec.max_batch_size), preferred, delay)
        self._delay = config.direct.max_queue_delay_microseconds * 1000
        self._utilization = np.float32(config.direct.minimum_slot_utilization)
        idle = config.max_sequence_idle_microseconds * 1000
        self._sequences = Sequences(0, slots, idle, self._placed)
        self._instances: dict[int, Instance] = {}  # by their places in `Sequences`
        self._place: dict[Instance, int] = {}
        self._issued: dict[int, BatchQueue] = {}  # of oldest: by place
        self._orderings: WeakKeyDictionary[Instance, Ordering] = WeakKeyDictionary()
        self._ordered = config.oldest.preserve_ordering
        self._steps: dict[Ticket, SequenceStep] = {}  # of requests that wait or run
        self._slot_of: dict[Ticket, Slot] = {}  # of those that have one
        self._turns: dict[Ticket, _Turn] = {}  # of iterative sequences, while they run
        self._wait_until: dict[Instance, int] = {}
        self._key = ShapeKey(spec)
        self._controls = Controls(spec)
        self._states = initial_states(spec, Path(model.directory).parent)
        for instance in model.instances:
            self._joins(instance)

    # -- instances -------------------------------------------------------------------------------------

    def _joins(self, instance: Instance) -> None:
        place = self._place[instance] = self._sequences.next_place
        self._instances[place] = instance
        self._issued[place] = BatchQueue()
        if self._ordered:
            self._orderings[instance] = Ordering()
        now = self._clock.now()
        for slot in self._sequences.add_place():
            self._issue(slot, now)

    def _leaves(self, instance: Instance) -> None:
        self._sequences.retire(self._place[instance])

    def _needed(self, instance: Instance) -> bool:
        place = self._place[instance]
        return not self._sequences.retired(place) or len(self._issued[place]) > 0

    def _gone(self, instance: Instance) -> None:
        self._wait_until.pop(instance, None)
        place = self._place.pop(instance)
        del self._instances[place], self._issued[place]
        self._sequences.forget_place(place)

    # -- requests --------------------------------------------------------------------------------------

    def _accept(self, ticket: Ticket, now: int) -> InferenceResponse | None:
        request = ticket.request
        assert request is not None
        options = request._options
        if rows_in_batch(self._model.spec, request) > 1:
            return error_response(messages.sequence_batch_too_large(self._model.name))
        if not options.correlation_id:
            if not self._iterative:
                return error_response(messages.sequence_without_id(self._model.name))
            request._options = replace(options, correlation_id=self._next_id, flags=START)
            self._next_id += 1
        return self._enter_sequence(ticket, request, now)

    def _enter_sequence(
        self, ticket: Ticket, request: InferenceRequest, now: int
    ) -> InferenceResponse | None:
        options = request._options
        sequence, flags, timeout = options.correlation_id, options.flags, options.timeout * 1000
        step = SequenceStep(ticket, sequence, bool(flags & END), self._key.of(request), now)
        self._steps[ticket] = step
        if not self._sequences.enter(step, bool(flags & START), now, timeout):
            del self._steps[ticket]
            return error_response(messages.sequence_without_start(self._model.name, sequence))
        slot = self._slot_of.get(ticket)
        if slot is None:
            ticket.expires = timeout > 0
        else:
            self._issue(slot, now)
        return None

    def _placed(self, step: SequenceStep, slot: Slot) -> None:
        """A sequence has got a slot (`Sequences`)."""
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
        """Move on the queue of a slot: end what is to end; for oldest, let its next step into a batch."""
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

    # -- batches ---------------------------------------------------------------------------------------

    def _pick(self, instance: Instance, now: int, take: bool, answers: Answers) -> list[Ticket]:
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
        self, instance: Instance, slots: list[Slot], now: int, take: bool, answers: Answers
    ) -> list[Ticket]:
        fronts = [self._sequences.front(slot) for slot in slots]
        self._drop(answers)
        ready = [step for step in fronts if step is not None]
        if not ready:
            return []
        if self._delay and self._utilization:
            until = min(step.since for step in ready) + self._delay
            used = np.float32(len(ready)) / np.float32(len(slots))  # as precise as the configuration
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
            request._inputs = [*request._inputs, *extra]
            return take_request(ticket)
        # The request may be run again: what the model does to its tensors must not be seen then.
        inputs = hand_over(request._inputs, False)
        if allocation_log.recording is not None:
            allocation_log.recording.handed(ticket.track, request._inputs, inputs)
        request = with_inputs(request, inputs + extra)
        request._answerable = turn = _Turn(ticket)
        with self._lock:
            self._turns[ticket] = turn
        return request

    def _see_again(self, ticket: Ticket) -> None:
        with self._lock:
            turn = self._turns.get(ticket)
            if turn is not None:  # a null request has none: there is nothing to see again
                turn.over = True

    def _over(self, tickets: Sequence[Ticket], again: list[Ticket], now: int, answers: Answers) -> None:
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

    def _enter_again(self, ticket: Ticket, now: int, answers: Answers) -> None:
        """Queue the request of an iterative sequence that the model wants to see again."""
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

    # -- time ------------------------------------------------------------------------------------------

    def _expire(self, now: int, answers: Answers) -> None:
        for slot in self._sequences.reap(now):
            self._issue(slot, now)
        for step in self._sequences.expire(now):
            self._forget(step.item)
            self._leave((step.item,))
            problem = error_response(messages.SEQUENCE_TIMEOUT_EXPIRED, ErrorCode.UNAVAILABLE)
            answers.append((step.item, problem))
        self._drop(answers)

    def _drop(self, answers: Answers) -> None:
        """Answer the steps of sequences that were cancelled."""
        dropped, self._sequences.dropped = self._sequences.dropped, []
        for step in dropped:
            self._forget(step.item)
            self._leave((step.item,))
            answers.append((step.item, cancelled_response(self._model.name)))

    def _wake_at(self, now: int) -> int | None:
        # Without a queue they are those of batches that have been answered otherwise.
        times = [t for i, t in self._wait_until.items() if i in self._idle] if self._queue else []
        next_time = self._sequences.next_time()
        return min(times if next_time is None else [*times, next_time], default=None)

    def _ordering_of(self, ticket: Ticket) -> Ordering | None:
        return self._orderings[ticket.bound[0]] if self._ordered and ticket.bound else None
