"""Circular BLS however a model waits: refused if the engine knows the wait, and otherwise reported."""

from __future__ import annotations

import re
import sys

import pytest

import bls_notebook as bls
from bls_notebook.extending import host_of
from tests.engine import gates
from tests.engine.harness import Caller, assert_all_idle, ctrl_c_once, infer, ints, message, until, value
from tests.engine.sources import DOUBLE, model, pbtxt
from tests.engine.test_deadlock_cycles import routed

# Bodies of `async def send(self, request)`.
COROUTINES = {
    "await": "return await request.async_exec()",
    "exec": "return request.exec()",
    "gather": "return (await asyncio.gather(request.async_exec()))[0]",
    "gather of two": "return (await asyncio.gather(ask('fine').async_exec(), request.async_exec()))[1]",
    "gather of gathers": "return (await asyncio.gather(asyncio.gather(request.async_exec())))[0][0]",
    "task": """
async def call():
    return await request.async_exec()
return (await asyncio.gather(asyncio.create_task(call()), ask('fine').async_exec()))[0]
""",
    "wait_for without a limit": "return await asyncio.wait_for(request.async_exec(), None)",
    "stream": "return list(await request.async_exec(decoupled=True))[0]",
}
# Bodies of `def send(self, request)`.
FUNCTIONS = {"exec": "return request.exec()", "stream": "return list(request.exec(decoupled=True))[0]"}
# Bodies whose waits the engine does not know.
UNKNOWN = {
    "async lock": """
lock = asyncio.Lock()
async def call():
    async with lock:
        return await request.async_exec()
first = asyncio.create_task(call())
await asyncio.sleep(0)
async with lock:
    return first.result()
""",
    "async to_thread": "return await asyncio.to_thread(request.exec)",
    "run": "async def call():\n    return await request.async_exec()\nreturn asyncio.run(call())",
    "thread": "found = []\nthread = threading.Thread(target=lambda: found.append(request.exec()))\n"
    "thread.start()\nthread.join()\nreturn found[0]",
}
WAYS = [*(("async ", name) for name in COROUTINES), *(("", name) for name in FUNCTIONS)]


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.strip("\n").split("\n"))


def _source(prefix: str, body: str) -> str:
    wait = "await " if prefix else ""
    return routed(f"{prefix}def", f"{wait}self.send(request)", f"{prefix}def send(self, request):\n{_indented(body)}")


def source(way: tuple[str, str]) -> str:
    prefix, name = way
    return _source(prefix, (COROUTINES if prefix else FUNCTIONS)[name])


@pytest.mark.parametrize("way", WAYS, ids="".join)
def test_a_model_that_calls_itself(repo: bls.ModelRepository, way: tuple[str, str]) -> None:
    repo.define("fine", DOUBLE, pbtxt())
    repo.define("a", source(way), pbtxt())
    text = message(repo.infer("a", ints(0)))
    assert "circular BLS: a -> a." in text
    assert "instance_group.count = 2 or more for 'a'" in text
    assert_all_idle(repo)
    repo.define("a", source(way), pbtxt(2))
    assert infer(repo, "a", 0) == 2
    assert "all 2 of its instances" in message(repo.infer("a", ints(0, 0)))


@pytest.mark.parametrize("way", UNKNOWN)
def test_a_circle_that_is_not_certain_is_reported(
    repo: bls.ModelRepository, reports: pytest.LogCaptureFixture, way: str
) -> None:
    prefix = "async " if way.startswith("async ") else ""
    repo.define("a", _source(prefix, UNKNOWN[way]), pbtxt())
    with ctrl_c_once(lambda: reports.records):
        repo.infer("a", ints(0))
    text = reports.records[0].getMessage()
    assert "A request from 'a' to 'a' has been waiting for " in text
    assert "a_0_0 is held by a request to 'a'" in text
    assert "Ctrl-C" in text
    assert_all_idle(repo)
    assert [record for record in reports.records if "has been waiting" in record.getMessage()] == reports.records[:1]


@pytest.mark.parametrize("traced", [False, True])
def test_a_request_behind_cancelled_work_is_reported(
    repo: bls.ModelRepository, reports: pytest.LogCaptureFixture, traced: bool
) -> None:
    body = """
def execute(self, requests):
    gates.open_gate("in")
    gates.pass_gate("on")
    return [answer(1) for r in requests]
"""
    repo.define("a", model(body), pbtxt())
    host = host_of(repo)
    running = host.send(host.request("a", ints(0)))
    gates.pass_gate("in")
    before = sys.gettrace()
    sys.settrace((lambda *_: None) if traced else before)  # as a debugger
    running.cancel()
    sys.settrace(before)
    later = Caller(repo.infer, "a", ints(0))
    until(lambda: reports.records, "a report")
    text = reports.records[0].getMessage()
    gates.open_gate("on")
    assert value(later.result()) == 1
    assert re.search(
        r"from 'notebook' to 'a' has been waiting for .* s: a_0_0 still runs a cancelled request, for .* s, "
        r"in model 'a', a/1/model.py, line \d+: gates.pass_gate\(\"on\"\). This request is served when .* "
        r"reload it \(`repo.reload\('a'\)`\)",
        text,
    )
    assert sum("has been waiting" in record.getMessage() for record in reports.records) == 1
