"""The table of sequences: who has which slot, against invariants."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from bls_notebook.engine.schedulers.sequence import Sequences, SequenceStep, Slot

IDLE = 10

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["step", "step", "step", "run", "run", "cancel", "time"]),
        st.integers(1, 5),
        st.booleans(),
        st.booleans(),
    ),
    max_size=60,
)


# A sequence has ended and its steps still wait: another one of its ID has another slot, and may be faster.
@example(
    places=1,
    slots=2,
    events=[
        ("step", 2, True, True),
        ("step", 2, True, False),
        ("step", 2, False, False),
        ("run", 1, False, False),
        ("run", 2, False, False),
    ],
)
@example(
    places=1,
    slots=2,
    events=[("step", 2, True, True), ("step", 2, True, False), ("cancel", 1, False, False), ("step", 2, False, False)],
)
@given(st.integers(1, 2), st.integers(1, 2), EVENTS)
def test_slots_are_given_fairly_and_come_back(
    places: int, slots: int, events: list[tuple[str, int, bool, bool]]
) -> None:
    slot_of: dict[SequenceStep, Slot] = {}
    table = Sequences(places, slots, IDLE, lambda step, slot: slot_of.__setitem__(step, slot))
    everything = [slot for place in table.slots.values() for slot in place]
    waiting: list[SequenceStep] = []
    ran: list[SequenceStep] = []
    gone: list[SequenceStep] = []
    came: list[SequenceStep] = []
    goes_on: list[tuple[SequenceStep, SequenceStep]] = []  # two steps of one sequence
    now = 100

    def run(slot: Slot) -> None:
        step = table.front(slot)
        if step is None:
            return
        assert slot_of[step] is slot
        slot.queue.popleft()
        waiting.remove(step)
        ran.append(step)
        if step.end:
            table.release(slot)

    def forget_dropped() -> None:
        for step in table.dropped:
            waiting.remove(step)
        table.dropped = []

    for what, number, first, second in events:
        if what == "step":
            step = SequenceStep(object(), number, second, since=now)
            if table.enter(step, first, now):
                waiting.append(step)
                if not first:
                    goes_on.append((next(s for s in reversed(came) if s.sequence == number), step))
                came.append(step)
            else:
                assert not first
        elif what == "run":
            run(everything[number % len(everything)])
        elif what == "cancel" and waiting:
            step = waiting.pop(number % len(waiting))
            step.gone = True
            gone.append(step)
        elif what == "time":
            now += number
            for slot in table.reap(now):
                table.front(slot)
        forget_dropped()
        # What has a slot waits in it, and each slot serves one sequence at a time.
        for slot in everything:
            steps = [s for s in slot.queue if s is not None]
            assert len({s.sequence for s in steps}) <= 1
            assert not any(s.end for s in steps[:-1])

    # However it went, time and work give every slot back, and everything is served or dropped.
    for _ in range(len(waiting) + len(gone) + 10):
        now += IDLE
        table.reap(now)
        for slot in everything:
            while any(s is not None for s in slot.queue):
                before = len(slot.queue), len(ran)
                run(slot)
                forget_dropped()
                assert (len(slot.queue), len(ran)) != before
            table.front(slot)
            forget_dropped()
    assert waiting == []
    # Nothing ran twice; a sequence kept its slot, and what had a slot ran in the order in which it came.
    assert len(set(map(id, ran))) == len(ran)
    for step, following in goes_on:
        assert following not in slot_of or slot_of[step] is slot_of[following]
    for slot in everything:
        for number in range(1, 6):
            order = [came.index(s) for s in ran if slot_of[s] is slot and s.sequence == number]
            assert order == sorted(order)
    free = set()
    for n in range(100, 100 + len(everything)):  # as many new sequences as slots find one at once
        step = SequenceStep(object(), n)
        assert table.enter(step, True, now)
        free.add(slot_of[step])
    assert free == set(everything)


def test_low_slots_first_so_that_batches_are_short() -> None:
    got: list[tuple[int, int]] = []
    table = Sequences(2, 2, IDLE, lambda step, slot: got.append((slot.place, slot.number)))
    for n in range(1, 5):
        table.enter(SequenceStep(None, n), True, 0)
    assert got == [(0, 0), (1, 0), (0, 1), (1, 1)]
