"""The dynamic batcher: batches, queues, alarms of waiting batches, and preserve_ordering."""

from __future__ import annotations

import asyncio
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.engine.schedulers.dynamic import BatchQueue, BatchRules, Plan, QueuePolicy, Waiting, form
from tests.engine import gates
from tests.engine.fake_clock import FakeClock
from tests.engine.harness import Caller, idle, message, queued, row, until
from tests.engine.sources import model

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
    plan = form(waiting, now, rules)
    assert plan == brute_force(waiting, now, rules)
    if plan.wait_until is not None:
        assert form(waiting, plan.wait_until - 1, rules).count == 0
        assert form(waiting, plan.wait_until, rules).count > 0


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


MORE = {
    "dynamic": "dynamic_batching { max_queue_delay_microseconds: 5000000 }",
    "two instances": "dynamic_batching { max_queue_delay_microseconds: 5000000 }"
    " instance_group { count: 2 kind: KIND_CPU }",
    "rejected": "dynamic_batching { max_queue_delay_microseconds: 5000000 default_queue_policy"
    " { allow_timeout_override: true default_timeout_microseconds: 9000000 } }",
    "direct": "sequence_batching { direct { max_queue_delay_microseconds: 5000000 minimum_slot_utilization: 0.5 } }",
    "oldest": "sequence_batching { oldest { max_candidate_sequences: 4 max_queue_delay_microseconds: 5000000"
    " preferred_batch_size: [ 4 ] } }",
}

ECHO = model("def execute(self, requests): return [echo(r) for r in requests]")


def config(more: str) -> str:
    return f"""
max_batch_size: 4
{more}
input [ {{ name: "X" data_type: TYPE_INT32 dims: [ 1 ] }} ]
output [ {{ name: "Y" data_type: TYPE_INT32 dims: [ 1 ] }} ]
"""


def asked(repo: bls.ModelRepository, **more: Any) -> Any:
    return repo.infer_async("m", row(4), correlation_id=1, flags=1, **more)


@pytest.mark.parametrize("kind", MORE)
def test_a_batch_that_waited_for_more_and_was_given_up(repo: bls.ModelRepository, clock: FakeClock, kind: str) -> None:
    repo.define("m", ECHO, config(MORE[kind]))

    async def give_up() -> None:
        task = asyncio.ensure_future(asked(repo))
        await asyncio.to_thread(until, lambda: queued(repo, "m") == clock.pending == 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert queued(repo, "m") == 0

    asyncio.run(give_up())
    clock.advance(20)
    assert clock.pending == 0
    # And those that come later are served.
    late = Caller(lambda: asyncio.run(asked(repo)))
    until(lambda: queued(repo, "m") == clock.pending == 1)
    clock.advance(6)
    assert late.result()["Y"].as_numpy().tolist() == [[4]]


def test_a_batch_that_waited_for_more_and_was_rejected(repo: bls.ModelRepository, clock: FakeClock) -> None:
    repo.define("m", ECHO, config(MORE["rejected"]))
    late = Caller(lambda: asyncio.run(asked(repo, timeout=1_000_000)))
    until(lambda: queued(repo, "m") == 1)
    clock.advance(2)
    assert message(late.result()) == "Request timeout expired"
    clock.advance(20)
    assert clock.pending == 0


@pytest.mark.parametrize("kind", ["direct", "oldest"])
def test_a_sequence_that_never_ends_keeps_no_model_that_is_gone(
    repo: bls.ModelRepository, clock: FakeClock, kind: str
) -> None:
    more = f"sequence_batching {{ max_sequence_idle_microseconds: 900000000 {kind} {{ }} }}"
    repo.define("m", ECHO, config(more))
    assert asyncio.run(asked(repo)).error is None
    assert clock.pending == 1
    repo.unload("m")
    assert clock.pending == 0


def test_a_request_that_is_put_back_leaves_a_preferred_size_at_once(
    repo: bls.ModelRepository, clock: FakeClock
) -> None:
    more = """dynamic_batching { preferred_batch_size: [ 2, 8 ] max_queue_delay_microseconds: 9000000
    default_queue_policy { timeout_action: DELAY allow_timeout_override: true
    default_timeout_microseconds: 8000000 } }"""
    repo.define("m", ECHO, config(more).replace("max_batch_size: 4", "max_batch_size: 8"))

    def ask(rows: int, timeout: int = 0) -> Caller:
        waiting = queued(repo, "m")
        value = np.full((rows, 1), rows, np.int32)
        caller = Caller(lambda: asyncio.run(repo.infer_async("m", {"X": value}, timeout=timeout)))
        until(lambda: queued(repo, "m") == waiting + 1)
        return caller

    first = ask(1, timeout=3_000_000)
    clock.advance(1)
    assert not first.done
    second = ask(2)
    assert not first.done
    clock.advance(3)
    assert second.result()["Y"].as_numpy().tolist() == [[2], [2]]
    assert not first.done
    clock.advance(9)
    assert first.result()["Y"].as_numpy().tolist() == [[1]]
    assert clock.pending == 0


COUNT = 5
EACH_ITS_TIME = model("""
def execute(self, requests):
    n = number(requests[0])
    gates.log.put(n)
    gates.pass_gate(f"go {n}")
    return [echo(r) for r in requests]

def finalize(self):
    gates.open_gate("finalized")
""")


def ordered_config(scheduler: str) -> str:
    return f"""
max_batch_size: 1
{scheduler}
instance_group [ {{ count: {COUNT} kind: KIND_CPU }} ]
input [ {{ name: "X" data_type: TYPE_INT32 dims: [ 1 ] }} ]
output [ {{ name: "Y" data_type: TYPE_INT32 dims: [ 1 ] }} ]
"""


def run(repo: bls.ModelRepository, first: int) -> tuple[list[int], list[int]]:
    """Requests 0 .. COUNT - 1, of which `first` is answered last; which tasks end before that, and then."""
    ended: list[int] = []
    early: list[int] = []

    async def main() -> None:
        tasks = []
        for number in range(COUNT):
            tasks.append(asyncio.create_task(repo.infer_async("m", row(number))))
            tasks[-1].add_done_callback(lambda _, number=number: ended.append(number))
            assert await asyncio.to_thread(gates.log.get) == number
        for free, number in enumerate(n for n in reversed(range(COUNT)) if n != first):
            gates.open_gate(f"go {number}")
            await asyncio.to_thread(until, lambda free=free: idle(repo, "m") == free + 1)
        await asyncio.sleep(0)
        early.extend(ended)
        gates.open_gate(f"go {first}")
        for response in await asyncio.gather(*tasks):
            assert response.error is None

    asyncio.run(main())
    return early, ended


@pytest.mark.parametrize("first", range(COUNT))
def test_tasks_end_in_order(repo: bls.ModelRepository, first: int) -> None:
    repo.define("m", EACH_ITS_TIME, ordered_config("dynamic_batching { preserve_ordering: true }"))
    early, ended = run(repo, first)
    assert early == list(range(len(early)))
    assert len(early) <= first
    assert ended == list(range(COUNT))


def test_an_unload_waits_until_all_have_been_told(repo: bls.ModelRepository) -> None:
    repo.define("m", EACH_ITS_TIME, ordered_config("dynamic_batching { preserve_ordering: true }"))
    callers = []
    for number in range(2):
        callers.append(Caller(repo.infer, "m", row(number)))
        assert gates.log.get() == number
    unloading = Caller(repo.unload, "m")
    gates.open_gate("go 1")
    gates.open_gate("go 0")
    gates.pass_gate("finalized")
    assert [caller.result()["Y"].as_numpy().tolist() for caller in callers] == [[[0]], [[1]]]
    unloading.result()
