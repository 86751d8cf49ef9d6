"""What time does to batches that wait, when those in them leave: nothing more, and to nobody else."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.engine.schedulers import base
from tests.engine.fake_clock import FakeClock
from tests.engine.harness import Caller, message, model, queued, until

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

ECHO = model("""
def execute(self, requests):
    return [pb.InferenceResponse([pb.Tensor("Y", r.inputs()[0].as_numpy())]) for r in requests]
""")


def config(more: str) -> str:
    return f"""
max_batch_size: 4
{more}
input [ {{ name: "X" data_type: TYPE_INT32 dims: [ 1 ] }} ]
output [ {{ name: "Y" data_type: TYPE_INT32 dims: [ 1 ] }} ]
"""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    fake = FakeClock()
    monkeypatch.setattr(base, "system_clock", fake)
    return fake


def asked(repo: bls.ModelRepository, **more: Any) -> Any:
    return repo.infer_async("m", {"X": np.array([[4]], np.int32)}, correlation_id=1, flags=1, **more)


@pytest.mark.parametrize("kind", MORE)
def test_a_batch_that_waited_for_more_and_was_given_up(repo: bls.ModelRepository, clock: FakeClock, kind: str) -> None:
    """Its time comes, and that is all: it is not waited for again and again."""
    repo.define("m", ECHO, config(MORE[kind]))

    async def give_up() -> None:
        task = asyncio.ensure_future(asked(repo))
        await asyncio.to_thread(until, lambda: queued(repo, "m") == 1)
        assert clock.pending == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert queued(repo, "m") == 0

    asyncio.run(give_up())
    clock.advance(20)
    assert clock.pending == 0
    # And those that come later are served.
    late = Caller(lambda: asyncio.run(asked(repo)))
    until(lambda: queued(repo, "m") == 1)
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
    """One row waits before two; when its time is up the two are run, and it goes on to wait for others."""
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
