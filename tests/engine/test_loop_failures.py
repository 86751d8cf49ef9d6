"""What ends a background task, a callback, a loop or finalize, ends nothing else."""

from __future__ import annotations

import gc
import logging

import pytest

import bls_notebook as bls
from tests.engine import gates
from tests.engine.harness import Caller, assert_all_idle, infer, ints, model, pbtxt


@pytest.mark.parametrize("does", ["sys.exit(1)", "raise KeyboardInterrupt", "raise ValueError('lost')"])
def test_a_background_task_that_dies(repo: bls.ModelRepository, does: str) -> None:
    """It takes neither the loop nor the requests in it along."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    repo.define("a", model(f'''
async def execute(self, requests):
    async def dies():
        {does}
    if number(requests[0]):
        self.task = asyncio.create_task(dies())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return [answer(1)]
'''), pbtxt())  # fmt: skip
    try:
        for n in (1, 0, 1, 0):
            assert Caller(infer, repo, "a", n).result(5) == 1
        assert_all_idle(repo)
        repo.unload("a")
        gc.collect()  # asyncio complains of the tasks' exceptions when they are dropped: now
    finally:
        logging.getLogger("asyncio").setLevel(logging.NOTSET)


def test_a_callback_that_exits(repo: bls.ModelRepository) -> None:
    repo.define("a", model('''
async def execute(self, requests):
    if number(requests[0]):
        asyncio.get_running_loop().call_soon(sys.exit, 4)
        await asyncio.sleep(0.001)
    return [answer(1)]
'''), pbtxt())  # fmt: skip
    for n in (1, 0):
        assert Caller(infer, repo, "a", n).result(5) == 1


def test_a_model_that_stops_its_loop(repo: bls.ModelRepository) -> None:
    repo.define("a", model('''
async def execute(self, requests):
    if number(requests[0]):
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
    return [answer(1)]
'''), pbtxt())  # fmt: skip
    for _ in range(2):
        Caller(repo.infer, "a", ints(1)).result(5)  # answered, if only with an error
        assert Caller(infer, repo, "a", 0).result(5) == 1


@pytest.mark.parametrize("does", ["raise ValueError('end')", "sys.exit(1)", "raise KeyboardInterrupt"])
def test_finalize_that_fails(repo: bls.ModelRepository, does: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the other instances are finalized all the same."""
    repo.define("a", model(f'''
async def execute(self, requests):
    return [answer(1)]

def finalize(self):
    gates.count("finalized")
    {does}
'''), pbtxt(3))  # fmt: skip
    assert infer(repo, "a") == 1
    Caller(repo.unload, "a").result(5)
    assert gates.counts["finalized"] == 3
    assert len([r for r in caplog.records if "finalize of a_0" in r.getMessage()]) == 3
