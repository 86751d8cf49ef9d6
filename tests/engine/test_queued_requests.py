"""The shortest way of a queued request: it leaves nothing behind, counts exactly, bears an interrupt."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.engine import runner
from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.model_counters import FOLD_AT
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.interrupts import Interrupted
from tests.engine import gates
from tests.engine.harness import DOUBLE, Caller, assert_all_idle, infer, ints, model, pbtxt, queued, until

GATHER = model("""
async def execute(self, requests):
    asked = [ask("double", n).async_exec() for n in range(number(requests[0]))]
    return [answer(sum(value_of(got) for got in await asyncio.gather(*asked)))]
""")
SLOW_GATHER = model("""
async def execute(self, requests):
    asked = [ask("slow", n).async_exec() for n in (1, 2, 3)]
    got = await asyncio.gather(*asked)
    words = [r.error().message() if r.has_error() else str(value_of(r)) for r in got]
    return [pb.InferenceResponse([pb.Tensor("Y", np.array([w.encode() for w in words], np.object_))])]
""")
SLOW = model("""
def execute(self, requests):
    if number(requests[0]) == 1:
        gates.pass_gate("go on")
    return [answer(number(requests[0]))]
""")


def alive() -> list[Any]:
    # Not `isinstance`, which asks the object: what other tests have left may answer with an exception.
    return [thing for thing in gc.get_objects() if issubclass(type(thing), (Ticket, Execution))]


def test_nothing_is_left_for_the_garbage_collector(repo: bls.ModelRepository) -> None:
    """A cycle a request would keep tensors alive until a collection."""
    repo.define("double", DOUBLE, pbtxt())
    repo.define("gather", GATHER, pbtxt())
    assert infer(repo, "gather", 4) == 12
    assert_all_idle(repo)
    gc.collect()
    gc.disable()
    try:
        before = len(alive())
        assert infer(repo, "gather", 50) == 50 * 49
        assert_all_idle(repo)
        until(lambda: len(alive()) <= before + 3, "the requests of the gather are freed")
    finally:
        gc.enable()


def test_each_is_counted_whatever_its_rows(repo: bls.ModelRepository) -> None:
    """They are added up from time to time, those of several rows with those of one."""
    wide = pbtxt(inputs="X:INT32", outputs="Y:INT32").replace("max_batch_size: 0", "max_batch_size: 4")
    source = model('''
def execute(self, requests):
    rows = [pb.get_input_tensor_by_name(r, "X").as_numpy() for r in requests]
    return [pb.InferenceResponse([pb.Tensor("Y", 2 * r)]) for r in rows]
''')  # fmt: skip
    repo.define("wide", source, wide)
    repo.define("many", model('''
async def execute(self, requests):
    count, got = number(requests[0]), []
    for n in range(count):
        rows = np.ones((1 + n % 2, 1), np.int32)
        got.append(pb.InferenceRequest(
            model_name="wide", inputs=[pb.Tensor("X", rows)], requested_output_names=["Y"]
        ).async_exec())
    for answer_ in await asyncio.gather(*got):
        assert not answer_.has_error(), answer_.error().message()
    return [answer(count)]
'''), pbtxt())  # fmt: skip
    sent = of_two = 0
    for count in (3, FOLD_AT - 3, 5, 2 * FOLD_AT):
        assert infer(repo, "many", count) == count
        assert_all_idle(repo)
        sent += count
        of_two += count // 2
        (row,) = repo.statistics("wide")["model_stats"]
        assert row["inference_stats"]["success"]["count"] == sent
        assert row["execution_count"] == sent
        assert row["inference_count"] == sent + of_two
        assert {b["batch_size"]: b["compute_infer"]["count"] for b in row["batch_stats"]} == {
            1: sent - of_two,
            2: of_two,
        }
        stats = row["inference_stats"]
        parts = ("queue", "compute_input", "compute_infer", "compute_output")
        assert stats["success"]["ns"] == sum(stats[part]["ns"] for part in parts)


def test_an_interrupt_that_arrives_after_the_model(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is given up; its instance serves those behind it."""
    repo.define("slow", SLOW, pbtxt())
    repo.define("gather", SLOW_GATHER, pbtxt(outputs="Y:STRING"))
    asked = Caller(repo.infer, "gather", ints(0))
    found = repo._server.find("slow")
    assert found is not None
    until(lambda: queued(repo, "slow") == 2 and isinstance(found.instances[0].holder, Execution))
    execution: Any = found.instances[0].holder
    arrived = []
    clear = runner.clear_interrupt

    def late(thread: int) -> None:
        assert thread == execution.thread
        arrived.append(thread)
        if len(arrived) < 3:
            raise Interrupted
        clear(thread)

    monkeypatch.setattr(runner, "clear_interrupt", late)
    execution.cancelled = True
    gates.open_gate("go on")
    texts: np.ndarray[Any, Any] = asked.result()["Y"].as_numpy()
    assert len(arrived) == 3
    assert "cancelled" in texts[0].decode()
    assert texts[1:].tolist() == [b"2", b"3"]
    assert execution.finished
    assert_all_idle(repo)
    assert infer(repo, "slow", 7) == 7
