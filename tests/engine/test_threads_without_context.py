"""Threads that carry no context: a wait of theirs that lasts is reported, as nobody can judge it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.engine.waiting.worker_threads import start_in_thread
from bls_notebook.extending import host_of
from tests.engine import gates
from tests.engine.ensembles import chain
from tests.engine.harness import Caller, assert_all_idle, infer, ints, queued, until, value
from tests.engine.sources import DOUBLE, GATED, caller_of, model, pbtxt

BARE = {
    "function of the model": "thread = threading.Thread(target=lambda: got.append(request.exec()))",
    "exec itself": "thread = threading.Thread(target=request.exec)",
    "pool": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "    pool = ThreadPoolExecutor(1)\n"
        "    pool.submit(request.exec).add_done_callback(lambda f: got.append(f.result()))\n"
        "    thread = threading.Thread(target=pool.shutdown)"
    ),
    "asyncio in a thread": (
        "async def call():\n"
        "        got.append(await request.async_exec())\n"
        "    thread = threading.Thread(target=asyncio.run, args=(call(),))"
    ),
}


def _bare(kind: str, callee: str) -> str:
    return model(f"""
def execute(self, requests):
    if number(requests[0]):
        return [answer(4)]
    got = []
    request = ask({callee!r}, 1)
    {BARE[kind]}
    thread.start()
    thread.join()
    return [answer(value_of(got[0]) if got else 0)]
""")


@pytest.mark.parametrize("kind", BARE)
def test_answers_errors_and_stubs_of_a_bare_thread_reach_its_model(repo: bls.ModelRepository, kind: str) -> None:
    repo.define("callee", model("def execute(self, requests):\n    raise ValueError('planted')\n"), pbtxt())
    repo.define("a", _bare(kind, "callee"), pbtxt())
    record = repo.infer("a", ints(0)).record
    if record.error is None:
        assert kind == "exec itself"
        assert "'a' ignored an error of 'callee'" in record.warnings[0]
    else:
        assert record.error.chain == ("a", "callee")
    with repo.stub("callee"):
        assert repo.infer("a", ints(0)).stubs == ("callee",)
    repo.define("callee", DOUBLE, pbtxt())
    assert infer(repo, "a") == (0 if kind == "exec itself" else 2)


@pytest.mark.parametrize("callee", ["a", "b", "chain"])
@pytest.mark.parametrize("kind", BARE)
def test_a_bare_thread_that_waits_for_its_own_model_is_reported(
    repo: bls.ModelRepository, reports: pytest.LogCaptureFixture, kind: str, callee: str
) -> None:
    repo.define("a", _bare(kind, callee), pbtxt())
    repo.define("b", caller_of("a"), pbtxt())
    repo.set_config("chain", chain("a"))
    repo.load("chain")
    caller = Caller(repo.infer, "a", ints(0))
    until(lambda: reports.records, "a report")
    assert not caller.done
    text = reports.records[0].getMessage()
    assert "to 'a' has been waiting" in text
    assert "a_0_0 is held by a request to 'a'" in text
    assert "Ctrl-C" in text
    scheduler: Any = host_of(repo).ready("a").scheduler
    scheduler._queue[0].interrupt()  # what Ctrl-C does to it in the end
    caller.result()
    assert_all_idle(repo, "a", "b")
    assert len(reports.records) == 1  # once a wait


def test_a_wait_that_ends_is_not_reported(repo: bls.ModelRepository, reports: pytest.LogCaptureFixture) -> None:
    repo.define("a", GATED, pbtxt())
    repo.define("b", caller_of("a", 1), pbtxt())
    first = Caller(infer, repo, "a", 1)
    gates.pass_gate("begun")
    second = Caller(infer, repo, "b")
    until(lambda: queued(repo, "a") == 1)
    threading.Event().wait(0.2)  # several times REPORT_AFTER
    gates.open_gate("go on")
    assert (first.result(), second.result()) == (1, 1)
    assert not reports.records


def test_jobs_of_the_engine_hold_no_caller(repo: bls.ModelRepository) -> None:
    repo.define("double", DOUBLE, pbtxt())

    async def call() -> Any:
        return await repo.infer_async("double", ints(2))

    assert value(asyncio.run(call())) == 4
    outcome: list[BaseException] = []
    done = threading.Event()

    def job() -> None:
        try:
            bls.pb_utils.InferenceRequest(model_name="double", inputs=[], requested_output_names=[]).exec()
        except BaseException as error:
            outcome.append(error)
        done.set()

    start_in_thread(job)
    assert done.wait(gates.LIMIT)
    assert "BLS is only supported during the 'execute' function." in str(outcome[0])
