"""`Sequences`: which sequence has which slot, and what waits for one.

Pure: no locks, no threads, no clock (time is an argument, in nanoseconds). Guarantees: the steps of a
sequence keep their order and its slot from its first step until its end; a slot serves one sequence at
a time; sequences that find no slot get one in the order in which they came; a sequence that is idle for too
long, or one of whose waiting steps was cancelled, ends and gives up its slot; an instance that retires keeps
the sequences that it has until they end.

The rules are those of core/src/sequence_batch_scheduler/sequence_batch_scheduler.cc.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class SequenceStep:
    """One request of a sequence.

    `item`: the request.
    `sequence`: the correlation ID.
    `end`: nothing follows.
    `key`: steps of different keys are never in one batch.
    `since`: when it came.
    `gone`: it has been answered while it waited; its sequence ends when its turn comes.
    """

    item: Any
    sequence: int | str
    end: bool = False
    key: Hashable = None
    since: int = 0
    gone: bool = False


@dataclass(eq=False)
class Slot:
    """Serves one sequence at a time.

    `place`: number of the instance.
    `number`: position in its batches.
    `queue`: what waits; None ends the sequence.
    `busy`: a step has been taken and is not over (used by the oldest strategy alone).
    """

    place: int
    number: int
    queue: deque[SequenceStep | None] = field(default_factory=deque)
    busy: bool = False


@dataclass(eq=False)
class _Backlog:
    """The steps of one sequence that has no slot yet."""

    steps: deque[SequenceStep] = field(default_factory=deque)
    expires: int | None = None


class Sequences:
    """The sequences of one model version.

    `places`: how many instances there are.
    `slots`: how many sequences an instance serves at a time.
    `idle`: how long a sequence may be idle, in nanoseconds.
    `placed`: called with each step and the slot that it has got.
    """

    def __init__(
        self,
        places: int,
        slots: int,
        idle: int,
        placed: Callable[[SequenceStep, Slot], None] = lambda *_: None,
    ) -> None:
        self._per_place = slots
        self.next_place = 0
        self.slots: dict[int, list[Slot]] = {}
        self._retiring: dict[int, int] = {}  # how many slots of a place that goes are not given up yet
        self.dropped: list[SequenceStep] = []  # of cancelled sequences, to be answered by who reads this
        self._idle = idle
        self._placed = placed
        self._ready: list[tuple[int, int]] = []  # slots of low numbers first, so that batches are short
        self._owned: dict[int | str, Slot] = {}
        self._backlog: deque[_Backlog] = deque()
        self._waiting: dict[int | str, _Backlog] = {}
        self._seen: dict[int | str, int] = {}
        for _ in range(places):
            self.add_place()

    def add_place(self) -> list[Slot]:
        """Begin to use an instance more, by the number `next_place`; sequences that wait get its slots."""
        place, self.next_place = self.next_place, self.next_place + 1
        slots = self.slots[place] = [Slot(place, number) for number in range(self._per_place)]
        for slot in slots:
            self.release(slot)
        return slots

    def retire(self, place: int) -> None:
        """Give the slots of an instance to no other sequences."""
        self._retiring[place] = self._per_place - sum(of == place for _, of in self._ready)
        self._ready = [(number, of) for number, of in self._ready if of != place]
        heapq.heapify(self._ready)

    def retired(self, place: int) -> bool:
        """Whether an instance that was to give up its slots has done so."""
        return self._retiring.get(place) == 0

    def forget_place(self, place: int) -> None:
        """Forget an instance that has retired."""
        del self.slots[place], self._retiring[place]

    def enter(self, step: SequenceStep, start: bool, now: int, timeout: int = 0) -> bool:
        """Queue a step; False where its sequence is not under way and it does not start it.

        `timeout`: how long its sequence may wait for a slot because of it, in nanoseconds; 0 for ever.
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
        """No more steps of a sequence are expected."""
        self._owned.pop(sequence, None)
        self._waiting.pop(sequence, None)
        self._seen.pop(sequence, None)

    def finish(self, sequence: int | str) -> Slot | None:
        """End a sequence after what waits of it; return its slot, None where it has none."""
        slot = self._owned.get(sequence)
        if slot is not None:
            self._forget(sequence)
            slot.queue.append(None)
        return slot

    def front(self, slot: Slot) -> SequenceStep | None:
        """Return the first step that waits in a slot, after ending the sequences that are to end."""
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
        """Give up a slot: what is left in it is dropped, and the next sequence that waits gets it."""
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

    # -- time ------------------------------------------------------------------------------------------

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
        """Return when `reap` or `expire` will find something; None for never."""
        times = [self._seen[s] + self._idle for s in self._owned]
        times += [b.expires for b in self._backlog if b.expires is not None]
        return min(times, default=None)
