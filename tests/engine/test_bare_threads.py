"""Threads that carry no context: a wait of theirs that lasts is reported, as nobody can judge it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.engine.schedulers import default as scheduler_module
from bls_notebook.engine.waiting import deadlock
from bls_notebook.engine.waiting.worker_threads import start_in_thread
from tests.engine import gates
from tests.engine.ensembles import chain
from tests.engine.harness import Caller, assert_all_idle, infer, ints, message, queued, until, value
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


def _bare(kind: str, callee: str, wait: str = "thread.join()") -> str:
    return model(f"""
def execute(self, requests):
    if number(requests[0]):
        return [answer(4)]
    got = []
    request = ask({callee!r}, 1)
    {BARE[kind]}
    thread.start()
    {wait}
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


@pytest.mark.parametrize("kind", [k for k in BARE if k != "asyncio in a thread"])
def test_a_bare_thread_that_waits_for_its_own_model_is_reported(
    repo: bls.ModelRepository, reports: pytest.LogCaptureFixture, kind: str
) -> None:
    repo.define("a", _bare(kind, "a", "while thread.is_alive(): thread.join(0.001)"), pbtxt())
    caller = Caller(infer, repo, "a")
    until(lambda: reports.records, "a report")
    assert not caller.done
    text = reports.records[0].getMessage()
    assert "to 'a'" in text
    assert "a_0_0 is held by a request to 'a'" in text
    assert "Ctrl-C" in text
    scheduler: Any = repo._server.find("a").scheduler  # type: ignore[union-attr]
    scheduler._queue[0].cancel()  # what Ctrl-C does to it in the end
    caller.join(gates.LIMIT)
    assert caller.done
    assert_all_idle(repo)
    assert len(reports.records) == 1  # once a wait


@pytest.mark.parametrize("wait", ["thread.join()", "threading.Thread.join(thread)"])
@pytest.mark.parametrize("kind", [k for k in BARE if k != "pool"])
def test_a_bare_thread_that_the_model_waits_for(repo: bls.ModelRepository, kind: str, wait: str) -> None:
    repo.define("a", _bare(kind, "a", wait), pbtxt())
    response = Caller(repo.infer, "a", ints(0)).result()
    if kind != "exec itself":
        assert "circular BLS: " in message(response)
    assert_all_idle(repo)


@pytest.mark.parametrize(("callee", "circle"), [("b", "a -> b -> a"), ("chain", "a -> chain -> a")])
@pytest.mark.parametrize("certain", [True, False])
def test_a_bare_thread_that_waits_for_its_model_through_others(
    repo: bls.ModelRepository, reports: pytest.LogCaptureFixture, callee: str, circle: str, certain: bool
) -> None:
    wait = "thread.join()" if certain else "while thread.is_alive(): thread.join(0.001)"
    repo.define("a", _bare("function of the model", callee, wait), pbtxt())
    repo.define("b", caller_of("a"), pbtxt())
    repo.set_config("chain", chain("a"))
    repo.load("chain")
    caller = Caller(repo.infer, "a", ints(0))
    if not certain:
        until(lambda: reports.records, "a report")
        assert "to 'a' has been waiting" in reports.records[0].getMessage()
        scheduler: Any = repo._server.find("a").scheduler  # type: ignore[union-attr]
        scheduler._queue[0].cancel()
    text = message(caller.result())
    assert ("circular BLS: " + circle in text) == certain
    assert_all_idle(repo, "a", "b")


def test_a_request_that_a_thread_of_the_engine_is_about_to_take_is_not_reported(
    repo: bls.ModelRepository, reports: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()
    jobs: list[Any] = []
    look = deadlock._look_circular

    def and_say(*args: Any) -> Any:
        found = look(*args)
        looked.set()
        return found

    monkeypatch.setattr(deadlock, "_look_circular", and_say)
    monkeypatch.setattr(scheduler_module, "start_in_thread", jobs.append)
    repo.define("double", DOUBLE, pbtxt())
    repo.define("a", _bare("asyncio in a thread", "double"), pbtxt())
    caller = Caller(infer, repo, "a")
    assert looked.wait(gates.LIMIT)
    assert queued(repo, "double") == 1
    assert not reports.records
    for job in jobs:
        start_in_thread(job)
    assert caller.result() == 2


@pytest.mark.parametrize("wait", [
    "response = pool.submit(request.exec).result()",
    "response = pool.submit(contextvars.copy_context().run, request.exec).result()",
    "response = pool.submit(lambda: pool.submit(request.exec).result()).result()",
    "with pool: future = pool.submit(request.exec)\n    response = future.result()",
])  # fmt: skip
@pytest.mark.usefixtures("reports")  # with an early look; a busy machine may report the wait before it is certain
def test_a_call_in_a_pool_that_the_model_waits_for(repo: bls.ModelRepository, wait: str) -> None:
    repo.define("a", model(f'''
def execute(self, requests):
    from concurrent.futures import ThreadPoolExecutor
    pool = ThreadPoolExecutor(2)
    request = ask("a", 1)
    if number(requests[0]):
        return [answer(4)]
    {wait}
    return [answer(value_of(response))]
'''), pbtxt())  # fmt: skip
    assert "circular BLS: a -> a" in message(Caller(repo.infer, "a", ints(0)).result())
    assert_all_idle(repo)


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
