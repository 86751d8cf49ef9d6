"""preserve_ordering: who waits is told in the order in which the requests came."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from tests.engine import gates
from tests.engine.harness import Caller, model, until

COUNT = 5
EACH_ITS_TIME = model("""
def execute(self, requests):
    number = int(requests[0].inputs()[0].as_numpy().ravel()[0])
    gates.log.put(number)
    gates.pass_gate(f"go {number}")
    return [pb.InferenceResponse([pb.Tensor("Y", r.inputs()[0].as_numpy())]) for r in requests]

def finalize(self):
    gates.open_gate("finalized")
""")


def config(scheduler: str) -> str:
    return f"""
max_batch_size: 1
{scheduler}
instance_group [ {{ count: {COUNT} kind: KIND_CPU }} ]
input [ {{ name: "X" data_type: TYPE_INT32 dims: [ 1 ] }} ]
output [ {{ name: "Y" data_type: TYPE_INT32 dims: [ 1 ] }} ]
"""


def answered(repo: bls.ModelRepository) -> int:
    found = repo._server.find("m")
    assert found is not None
    return len(found.scheduler._idle)  # type: ignore[attr-defined]


def run(repo: bls.ModelRepository, first: int) -> tuple[list[int], list[int]]:
    """Requests 0 .. COUNT - 1, of which `first` is answered last; which tasks end before that, and then."""
    ended: list[int] = []
    early: list[int] = []

    async def main() -> None:
        tasks = []
        for number in range(COUNT):
            array = np.array([[number]], np.int32)
            tasks.append(asyncio.create_task(repo.infer_async("m", {"X": array})))
            tasks[-1].add_done_callback(lambda _, number=number: ended.append(number))
            assert await asyncio.to_thread(gates.log.get) == number
        for free, number in enumerate(n for n in reversed(range(COUNT)) if n != first):
            gates.open_gate(f"go {number}")
            await asyncio.to_thread(until, lambda free=free: answered(repo) == free + 1)
        await asyncio.sleep(0)
        early.extend(ended)
        gates.open_gate(f"go {first}")
        for response in await asyncio.gather(*tasks):
            assert response.error is None

    asyncio.run(main())
    return early, ended


@pytest.mark.parametrize("first", range(COUNT))
def test_tasks_end_in_order(repo: bls.ModelRepository, first: int) -> None:
    repo.define("m", EACH_ITS_TIME, config("dynamic_batching { preserve_ordering: true }"))
    early, ended = run(repo, first)
    assert early == list(range(len(early)))
    assert len(early) <= first
    assert ended == list(range(COUNT))


def test_without_it_they_do_not(repo: bls.ModelRepository) -> None:
    repo.define("m", EACH_ITS_TIME, config("dynamic_batching { }"))
    assert run(repo, 0)[1] == [*reversed(range(COUNT))]


def test_an_unload_waits_until_all_have_been_told(repo: bls.ModelRepository) -> None:
    repo.define("m", EACH_ITS_TIME, config("dynamic_batching { preserve_ordering: true }"))
    callers = []
    for number in range(2):
        callers.append(Caller(ask, repo, number))
        assert gates.log.get() == number
    unloading = Caller(repo.unload, "m")
    gates.open_gate("go 1")
    gates.open_gate("go 0")
    gates.pass_gate("finalized")
    assert [caller.result()["Y"].as_numpy().tolist() for caller in callers] == [[[0]], [[1]]]
    unloading.result()


def ask(repo: bls.ModelRepository, number: int) -> Any:
    return repo.infer("m", {"X": np.array([[number]], np.int32)})
