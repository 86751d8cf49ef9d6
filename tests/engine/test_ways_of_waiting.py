"""Circular BLS however a model waits: in loops of its own, in threads, behind what asyncio has for that."""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import Any

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.engine.waiting import deadlock
from bls_notebook.extending import host_of
from tests.engine import gates
from tests.engine.harness import Caller, assert_all_idle, infer, ints, message, queued, until, value
from tests.engine.sources import DOUBLE, model, pbtxt
from tests.engine.test_cycles import routed

# Bodies of `async def send(self, request)`.
COROUTINES = {
    "await": "return await request.async_exec()",
    "exec": "return request.exec()",
    "semaphore": """
one = asyncio.Semaphore(1)
async def call():
    async with one:
        return await request.async_exec()
return (await asyncio.gather(call(), call()))[0]
""",
    "lock": """
lock = asyncio.Lock()
async def call():
    async with lock:
        return await request.async_exec()
first = asyncio.create_task(call())
await asyncio.sleep(0)
async with lock:
    return first.result()
""",
    "queue": """
queue = asyncio.Queue()
async def call():
    await queue.put(await request.async_exec())
task = asyncio.create_task(call())
return await queue.get()
""",
    "event": """
event = asyncio.Event()
future = request.async_exec()
future.add_done_callback(lambda _: event.set())
await event.wait()
return future.result()
""",
    "event whose request nobody holds": """
event, found = asyncio.Event(), []
request.async_exec().add_done_callback(lambda future: (found.append(future.result()), event.set()))
await event.wait()
return found[0]
""",
    "condition": """
condition, found = asyncio.Condition(), []
async def call():
    found.append(await request.async_exec())
    async with condition:
        condition.notify_all()
task = asyncio.create_task(call())
async with condition:
    await condition.wait_for(lambda: found)
return found[0]
""",
    "future": """
future = asyncio.get_running_loop().create_future()
async def call():
    future.set_result(await request.async_exec())
task = asyncio.create_task(call())
return await future
""",
    "future of the instance": """
self.future = asyncio.get_running_loop().create_future()
async def call():
    self.future.set_result(await request.async_exec())
self.task = asyncio.create_task(call())
return await self.future
""",
    "barrier": """
barrier = asyncio.Barrier(2)
async def call():
    response = await request.async_exec()
    await barrier.wait()
    return response
task = asyncio.create_task(call())
await barrier.wait()
return await task
""",
    "shield": "return await asyncio.shield(request.async_exec())",
    "to_thread": "return await asyncio.to_thread(request.exec)",
    "loop in a thread": """
async def call():
    return await request.async_exec()
return await asyncio.to_thread(asyncio.run, call())
""",
}
# Bodies of `def send(self, request)`.
FUNCTIONS = {
    "exec": "return request.exec()",
    "new loop": """
async def call():
    return await request.async_exec()
loop = asyncio.new_event_loop()
try:
    return loop.run_until_complete(call())
finally:
    loop.close()
""",
    "thread of a loop": "return asyncio.run(asyncio.to_thread(request.exec))",
} | {f"run, {name}": "async def run():\n{}\nreturn asyncio.run(run())" for name in COROUTINES}
COROUTINES |= {
    "gather": "return (await asyncio.gather(request.async_exec()))[0]",
    "gather of two": "return (await asyncio.gather(ask('fine').async_exec(), request.async_exec()))[1]",
    "task group": """
async def call():
    return await request.async_exec()
async with asyncio.TaskGroup() as group:
    task = group.create_task(call())
return task.result()
""",
    "wait": "done, _ = await asyncio.wait([request.async_exec()])\nreturn done.pop().result()",
    "as completed": "for first in asyncio.as_completed([request.async_exec()]):\n    return await first",
    "wait_for without a limit": "return await asyncio.wait_for(request.async_exec(), None)",
    "executor": "run = contextvars.copy_context().run\n"
    "return await asyncio.get_running_loop().run_in_executor(None, run, request.exec)",
    "stream": "return list(await request.async_exec(decoupled=True))[0]",
}
# A thread's own functions hold the instance: that somebody else does not cannot be told.
NOT_CERTAIN = ("", "run, future of the instance")
WAYS = [*(("async ", name) for name in COROUTINES), *(("", name) for name in FUNCTIONS)]
WAYS.remove(NOT_CERTAIN)


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.strip("\n").split("\n"))


def source(way: tuple[str, str]) -> str:
    prefix, name = way
    if prefix:
        body, wait = COROUTINES[name], "await "
    else:
        inner = _indented(COROUTINES.get(name.removeprefix("run, "), ""))
        body, wait = FUNCTIONS[name].replace("{}", inner), ""
    return routed(f"{prefix}def", f"{wait}self.send(request)", f"{prefix}def send(self, request):\n{_indented(body)}")


def _too_old(way: tuple[str, str]) -> bool:
    """Barriers and task groups are new in 3.11; until then what the functions of a running thread hold is not known."""
    hidden = way[1].startswith("run, ") and way[1] not in ("run, await", "run, exec", "run, to_thread")
    new = "barrier" in way[1] or way[1] == "task group"
    return sys.version_info < (3, 11) and (new or hidden)


NEEDS = [
    pytest.param(way, id="".join(way), marks=pytest.mark.skipif(_too_old(way), reason="needs a newer Python"))
    for way in WAYS
]


@pytest.mark.parametrize("way", NEEDS)
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


def in_queue(repo: bls.ModelRepository, name: str) -> Any:
    """The one request in a model's queue."""
    found: Any = repo._server.find(name)
    until(lambda: queued(repo, name) == 1)
    return found.scheduler._queue[0]


def test_a_circle_that_is_not_certain_is_reported(repo: bls.ModelRepository, reports: pytest.LogCaptureFixture) -> None:
    repo.define("a", source(NOT_CERTAIN), pbtxt())
    caller = Caller(repo.infer, "a", ints(0))
    until(lambda: reports.records, "a report")
    text = reports.records[0].getMessage()
    assert "A request from 'a' to 'a' has been waiting for " in text
    assert "a_0_0 is held by a request to 'a'" in text
    assert "Ctrl-C" in text
    in_queue(repo, "a").cancel()
    assert message(caller.result())
    assert_all_idle(repo)
    assert len(reports.records) == 1


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
        r"from 'notebook' to 'a' has been waiting for .* s: a_0_0 is held by a cancelled request to 'a'", text
    )
    assert "is served when it ends" in text
    assert len(reports.records) == 1


def test_behind_one_that_can_never_end(repo: bls.ModelRepository) -> None:
    repo.define("a", model('''
async def execute(self, requests):
    if number(requests[0]):
        await asyncio.Event().wait()
    return [answer(1)]
'''), pbtxt())  # fmt: skip
    first = Caller(repo.infer, "a", ints(1))
    found: Any = repo._server.find("a")
    until(lambda: found.instances[0].loop_thread and found.instances[0].loop.selector.idle)
    text = message(Caller(repo.infer, "a", ints(0)).result())
    assert "circular" not in text
    assert "its only instance is held by requests that wait for something that no code can do any more" in text
    holder = found.instances[0].holder
    holder.interrupt()
    assert message(first.result())


RESCUES = {
    "a thread of the model": """
event, loop = asyncio.Event(), asyncio.get_running_loop()
def rescue():
    gates.pass_gate("rescue")
    loop.call_soon_threadsafe(event.set)
threading.Thread(target=rescue).start()
""",
    "somebody else's thread": """
event, loop = asyncio.Event(), asyncio.get_running_loop()
gates.shared["rescue"] = lambda: loop.call_soon_threadsafe(event.set)
""",
    "by the loop that the event knows": """
event = gates.shared["event"] = asyncio.Event()
gates.shared["rescue"] = lambda: event._loop.call_soon_threadsafe(event.set)
""",
    "an executor": """
event, loop = asyncio.Event(), asyncio.get_running_loop()
loop.run_in_executor(None, lambda: (gates.pass_gate("rescue"), loop.call_soon_threadsafe(event.set)))
""",
    "a timer's thread": """
event, loop = asyncio.Event(), asyncio.get_running_loop()
timer = threading.Timer(1e-9, loop.call_soon_threadsafe, (event.set,))
gates.shared["rescue"] = timer.start
""",
    "another request": """
event = self.event = asyncio.Event()
""",
    "a connection": """
event, loop = asyncio.Event(), asyncio.get_running_loop()
ours, theirs = socket.socketpair()
loop.add_reader(ours, lambda: (loop.remove_reader(ours), event.set()))
gates.shared["sockets"] = ours, theirs
gates.shared["rescue"] = lambda: theirs.send(b".")
""",
}
RESCUED = """
async def execute(self, requests):
    x = number(requests[0])
    if x == 2:
        self.event.set()
    if x != 1:
        requests[0].get_response_sender().send(answer(5), FINAL)
        return
    sender = requests[0].get_response_sender()
{}
    gates.open_gate("waits")
    await event.wait()
    sender.send(answer(7), FINAL)
"""
CALLS = """
def execute(self, requests):
    if not number(requests[0]):
        return [answer(3)]
    return [answer(sum(value_of(r) for r in ask("d", 1).exec(decoupled=True)))]
"""


@pytest.mark.parametrize("way", RESCUES)
def test_an_event_that_somebody_else_may_set(repo: bls.ModelRepository, way: str) -> None:
    body = RESCUED.format(_indented(RESCUES[way]))
    repo.define("d", model(body).replace("import asyncio,", "import asyncio, socket,"), pbtxt(decoupled=True))
    repo.define("a", model(CALLS), pbtxt())
    first = Caller(infer, repo, "a", 1)
    gates.pass_gate("waits")
    second = Caller(infer, repo, "a", 0)
    until(lambda: queued(repo, "a") == 1)
    found: Any = repo._server.find("d")
    until(lambda: found.instances[0].loop.selector.idle)
    deadlock.look_at(in_queue(repo, "a"))
    assert not first.done
    assert not second.done
    gates.open_gate("rescue")
    if "rescue" in gates.shared:
        gates.shared["rescue"]()
    elif way == "another request":
        assert [value(r) for r in repo.stream("d", ints(2))] == [5]
    assert (first.result(), second.result()) == (7, 3)
    for each in gates.shared.get("sockets", ()):
        each.close()


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(WAYS), min_size=3, max_size=3),
    st.lists(st.integers(1, 2), min_size=3, max_size=3),
    st.lists(st.integers(0, 2), min_size=1, max_size=4),
)
@settings(max_examples=20, suppress_health_check=list(hypothesis.HealthCheck), database=None)
def test_any_mix(ways: list[tuple[str, str]], counts: list[int], route: list[int]) -> None:
    gates.reset()
    hypothesis.assume(not any(map(_too_old, ways)))
    with bls.ModelRepository() as repo:
        repo.define("fine", DOUBLE, pbtxt(3))
        for name, way, count in zip("abc", ways, counts, strict=True):
            repo.define(name, source(way), pbtxt(count))
        used = Counter([0])
        missing = None
        for step in route:
            used[step] += 1
            if used[step] > counts[step]:
                missing = missing or "abc"[step]
        response = Caller(repo.infer, "a", ints(*route)).result()
        if missing is None:
            assert value(response) == 1 + len(route)
        else:
            assert f"The request to '{missing}' can never be served" in message(response)
        assert_all_idle(repo)
