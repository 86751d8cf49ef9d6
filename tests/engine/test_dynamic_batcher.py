"""How batches are formed: the rules against a brute-force statement of them, and the queue."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.engine.schedulers.dynamic import BatchQueue, BatchRules, Plan, QueuePolicy, Waiting, form

RULES = st.builds(
    BatchRules,
    max_rows=st.integers(1, 8),
    preferred=st.frozensets(st.integers(1, 8), max_size=3),
    delay=st.sampled_from([0, 5, 20]),
).filter(lambda rules: rules.largest <= rules.max_rows)


@st.composite
def queues(draw: st.DrawFn) -> tuple[list[Waiting], int, BatchRules]:
    rules = draw(RULES)
    entries = draw(
        st.lists(st.tuples(st.integers(1, rules.max_rows), st.sampled_from("aab"), st.integers(0, 30)), max_size=9)
    )
    waiting = [Waiting(n, rows, key, since) for n, (rows, key, since) in enumerate(entries)]
    return waiting, draw(st.integers(30, 60)), rules


def brute_force(waiting: list[Waiting], now: int, rules: BatchRules) -> Plan:
    """Judge every prefix of the queue."""
    if not waiting:
        return Plan(0)
    sizes = [0, *accumulate(e.rows for e in waiting)]
    fits = [
        n
        for n in range(1, len(waiting) + 1)
        if len({e.key for e in waiting[:n]}) == 1 and (n == 1 or sizes[n] <= rules.max_rows)
    ]
    longest = max(fits)
    age = now - min(e.since for e in waiting[:longest])
    late = rules.delay > 0 and age >= rules.delay
    preferred = [n for n in fits if sizes[n] in rules.preferred]
    # No preferred size can be made any more once the largest would be exceeded.
    too_far = [n for n in range(1, longest + 1) if n < len(waiting) and sizes[n + 1] > rules.largest]
    if not late and preferred:
        first_too_far = min(too_far, default=len(waiting))
        if min(preferred) <= first_too_far or max(preferred) > first_too_far:
            return Plan(max(preferred))
    if not late and too_far:
        return Plan(min(too_far))
    if late or rules.delay == 0 or longest < len(waiting) or sizes[longest] >= rules.largest:
        return Plan(longest)
    return Plan(0, min(e.since for e in waiting[:longest]) + rules.delay)


@given(queues())
def test_batches_are_formed_as_stated(case: tuple[list[Waiting], int, BatchRules]) -> None:
    waiting, now, rules = case
    assert form(waiting, now, rules) == brute_force(waiting, now, rules)


@given(queues())
def test_a_batch_never_breaks_a_rule(case: tuple[list[Waiting], int, BatchRules]) -> None:
    waiting, now, rules = case
    plan = form(iter(waiting), now, rules)
    batch = waiting[: plan.count]
    assert sum(e.rows for e in batch) <= rules.max_rows
    assert len({e.key for e in batch}) <= 1
    if waiting and not plan.count:  # it waits only where waiting can help, and not for ever
        assert plan.wait_until is not None
        assert now < plan.wait_until <= now + rules.delay


@given(queues())
def test_waiting_until_the_plan_says_so_ends_the_wait(case: tuple[list[Waiting], int, BatchRules]) -> None:
    waiting, now, rules = case
    plan = form(waiting, now, rules)
    if plan.wait_until is not None:
        assert form(waiting, plan.wait_until - 1, rules).count == 0
        assert form(waiting, plan.wait_until, rules).count > 0


# -- the queue ---------------------------------------------------------------------------------------

POLICIES = st.builds(
    QueuePolicy,
    rejects=st.booleans(),
    timeout=st.sampled_from([0, 3, 10]),
    override=st.booleans(),
    max_size=st.sampled_from([0, 0, 2, 3]),
)
ADD, TAKE, REMOVE, TIME = "add", "take", "remove", "time"
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just(ADD), st.integers(0, 2), st.sampled_from([0, 1, 5, 20])),
        st.tuples(st.just(TAKE), st.integers(0, 4), st.just(0)),
        st.tuples(st.just(REMOVE), st.integers(0, 20), st.just(0)),
        st.tuples(st.just(TIME), st.integers(0, 8), st.just(0)),
    ),
    max_size=40,
)


@given(POLICIES, st.dictionaries(st.integers(0, 2), POLICIES), OPERATIONS)
def test_the_queue_against_plain_lists(
    default: QueuePolicy, policies: dict[int, QueuePolicy], operations: list[tuple[str, int, int]]
) -> None:
    queue = BatchQueue(default, policies)
    levels: dict[int, tuple[list[Waiting], list[Waiting]]] = {n: ([], []) for n in range(3)}

    def served() -> list[int]:
        return [e.item for fresh, delayed in levels.values() for e in fresh + delayed]

    now = 10**6
    for number, (what, n, timeout) in enumerate(operations):
        if what == ADD:
            policy = policies.get(n, default)
            fresh, delayed = levels[n]
            entry = Waiting(number, 1, None, now, policy.deadline(timeout, now))
            room = policy.max_size == 0 or len(fresh) + len(delayed) < policy.max_size
            assert queue.add(entry, n) is room
            if room:
                fresh.append(entry)
        elif what == TAKE:
            expected = served()[:n]
            assert [e.item for e in queue.take(n)] == expected
            for fresh, delayed in levels.values():
                fresh[:] = [e for e in fresh if e.item not in expected]
                delayed[:] = [e for e in delayed if e.item not in expected]
        elif what == REMOVE:
            assert queue.remove(n) is (n in served())
            for fresh, delayed in levels.values():
                fresh[:] = [e for e in fresh if e.item != n]
                delayed[:] = [e for e in delayed if e.item != n]
        else:
            now += n * 1000
            gone, before = [], queue.next_time(rejects=True)
            for level, (fresh, delayed) in levels.items():
                late = [e for e in fresh if e.deadline is not None and e.deadline <= now]
                fresh[:] = [e for e in fresh if e not in late]
                if policies.get(level, default).rejects:
                    gone += [e.item for e in late]
                else:
                    delayed += late
            if gone:
                assert before is not None
                assert before <= now
            assert sorted(e.item for e in queue.reject(now)) == sorted(gone)
            queue.put_back(now)
        assert [e.item for e in queue] == served()
        assert len(queue) == len(served())


def test_a_timeout_of_one_microsecond_has_always_expired() -> None:
    policy = QueuePolicy(timeout=1000, override=True)
    assert policy.deadline(1, 5) == 5
    assert policy.deadline(0, 0) == 999_000
    assert policy.deadline(2000, 0) == 999_000  # a request can ask for less, not for more
    assert QueuePolicy(timeout=1000).deadline(1, 0) == 999_000
    assert QueuePolicy(override=True).deadline(1, 0) is None
