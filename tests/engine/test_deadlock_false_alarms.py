"""What looks circular and is not: everything that can still be answered is answered."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.engine.schedulers.default import DefaultScheduler
from tests.engine import gates
from tests.engine.harness import Caller, assert_all_idle, infer, ints, message, queued, until, value
from tests.engine.sources import HOLDS, model, pbtxt


def test_fire_and_forget_by_a_task_that_goes_on(repo: bls.ModelRepository) -> None:
    repo.define("a", model('''
async def execute(self, requests):
    if not number(requests[0]):
        return [answer(7)]
    async def later():
        gates.shared["answer"] = value_of(await ask("a").async_exec())
        gates.open_gate("answered")
    self.task = asyncio.create_task(later())
    await asyncio.sleep(0)
    return [answer(1)]
'''), pbtxt())  # fmt: skip
    assert infer(repo, "a", 1) == 1
    gates.pass_gate("answered")
    assert gates.shared["answer"] == 7


@pytest.mark.parametrize("call", [
    "await asyncio.wait_for(ask('a').async_exec(), 0.02)",
    "await asyncio.wait_for(asyncio.gather(ask('a').async_exec(), ask('a').async_exec()), 0.02)",
    pytest.param("async with asyncio.timeout(0.02): await ask('a').async_exec()",
                 marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.timeout is new in 3.11")),
])  # fmt: skip
def test_a_call_to_oneself_with_a_time_limit(repo: bls.ModelRepository, call: str) -> None:
    repo.define("a", model(f'''
async def execute(self, requests):
    if not number(requests[0]):
        return [answer(0)]
    try:
        {call}
    except asyncio.TimeoutError:
        return [answer(-1)]
    return [answer(1)]
'''), pbtxt())  # fmt: skip
    assert infer(repo, "a", 1) == -1
    assert_all_idle(repo)
    assert infer(repo, "a", 0) == 0


def test_a_time_limit_further_up(repo: bls.ModelRepository) -> None:
    repo.define("a", model('''
async def execute(self, requests):
    if number(requests[0]):
        return [answer(3)]
    try:
        await asyncio.wait_for(ask("b").async_exec(), 0.05)
    except asyncio.TimeoutError:
        return [answer(-1)]
'''), pbtxt())  # fmt: skip
    repo.define("b", model('''
def execute(self, requests):
    gates.shared["b"] = value_of(ask("a", 1).exec())
    gates.open_gate("b")
    return [answer(0)]
'''), pbtxt())  # fmt: skip
    assert infer(repo, "a") == -1
    gates.pass_gate("b")
    assert gates.shared["b"] == 3


def test_a_second_task_that_cancels_after_its_own_request(repo: bls.ModelRepository) -> None:
    repo.define("slow", model('''
def execute(self, requests):
    gates.pass_gate("slow")
    return [answer(1)]
'''), pbtxt())  # fmt: skip
    repo.define("a", model('''
async def execute(self, requests):
    call = asyncio.ensure_future(ask("a").async_exec())
    async def give_up():
        await ask("slow").async_exec()
        call.cancel()
    task = asyncio.create_task(give_up())
    gates.open_gate("waits")
    try:
        await call
    except asyncio.CancelledError:
        await task
        return [answer(-1)]
'''), pbtxt())  # fmt: skip
    caller = Caller(infer, repo, "a")
    gates.pass_gate("waits")
    until(lambda: queued(repo, "a") == 1)
    gates.open_gate("slow")
    assert caller.result() == -1


SUMS_STREAM = model("""
def execute(self, requests):
    if number(requests[0]):
        return [answer(3)]
    return [answer(sum(value_of(r) for r in ask("d").exec(decoupled=True)))]
""")


# Senders that may answer while `execute` waits for a request: each answers once `reply()` returns.
ANSWERS = {
    "thread": "threading.Thread(target=reply).start()",
    "executor": "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor(1).submit(reply)",
    "thread of initialize": "self.queue.put(reply)",
    "to_thread": "task = asyncio.ensure_future(asyncio.to_thread(reply))",
    "request": "gates.shared['senders'] = [sender]",
}


@pytest.mark.parametrize("decoupled", [True, False])
@pytest.mark.parametrize("way", ANSWERS)
def test_senders_that_answer_while_execute_waits(repo: bls.ModelRepository, way: str, decoupled: bool) -> None:
    is_async = way in ("to_thread", "request")
    if way == "request" and not decoupled:
        pytest.skip("a model that is not decoupled runs one request at a time")
    start = "\n".join("    " + line for line in ANSWERS[way].split("\n"))
    repo.define("d", model(f"""
def initialize(self, args):
    import queue
    self.queue = queue.SimpleQueue()
    if {way == "thread of initialize"}:
        threading.Thread(target=lambda: self.queue.get()()).start()

{"async " * is_async}def execute(self, requests):
    sender = requests[0].get_response_sender()
    if number(requests[0]):
        gates.shared["senders"].pop().send(answer(5), FINAL)
        return sender.send(answer(0), FINAL)
    def reply():
        gates.pass_gate("reply")
        sender.send(answer(5), FINAL)
{start}
    response = {"await ask('x', 1).async_exec()" if is_async else "ask('x', 1).exec()"}
    gates.shared["x"] = value_of(response)
    gates.open_gate("d ended")
    {"" if decoupled else "return [None]"}
"""), pbtxt(decoupled=decoupled))  # fmt: skip
    repo.define("x", SUMS_STREAM, pbtxt())
    caller = Caller(infer, repo, "x")
    until(lambda: queued(repo, "x") == 1)
    assert not caller.done
    gates.open_gate("reply")
    if way == "request":
        assert [value(r) for r in repo.stream("d", ints(1))] == [0]
    assert caller.result() == 5
    gates.pass_gate("d ended")
    assert gates.shared["x"] == 3


def test_an_execution_that_has_answered_already(repo: bls.ModelRepository) -> None:
    repo.define("d", model('''
async def execute(self, requests):
    requests[0].get_response_sender().send(answer(5), FINAL)
    gates.shared["x"] = value_of(await ask("x", 1).async_exec())
    gates.open_gate("d ended")
'''), pbtxt(decoupled=True))  # fmt: skip
    repo.define("x", SUMS_STREAM, pbtxt())
    for _ in range(5):
        assert infer(repo, "x") == 5
        gates.pass_gate("d ended")
        assert gates.shared.pop("x") == 3
        gates.gate("d ended").clear()


def test_a_thread_that_cancels_a_task(repo: bls.ModelRepository) -> None:
    repo.define("a", model('''
async def execute(self, requests):
    loop, call = asyncio.get_running_loop(), ask("a").async_exec()
    def give_up():
        gates.pass_gate("give up")
        loop.call_soon_threadsafe(call.cancel)
    threading.Thread(target=give_up).start()
    try:
        await call
    except asyncio.CancelledError:
        return [answer(-1)]
'''), pbtxt())  # fmt: skip
    caller = Caller(infer, repo, "a")
    until(lambda: queued(repo, "a") == 1 or caller.done)
    gates.open_gate("give up")
    assert caller.result() == -1


def test_a_callback_that_cancels_a_task(repo: bls.ModelRepository) -> None:
    repo.define("slow", HOLDS, pbtxt())
    repo.define("a", model('''
async def execute(self, requests):
    call = ask("a").async_exec()
    ask("slow", 1).async_exec().add_done_callback(lambda _: call.cancel())
    try:
        await call
    except asyncio.CancelledError:
        return [answer(-1)]
'''), pbtxt())  # fmt: skip
    caller = Caller(infer, repo, "a")
    until(lambda: queued(repo, "a") == 1 or caller.done)
    gates.open_gate("go on")
    assert caller.result() == -1


def test_a_thread_that_may_cancel_a_waiting_request_breaks_no_cycle(repo: bls.ModelRepository) -> None:
    """The server serves or drops a cancelled request once an instance is free."""
    repo.define("a", model('''
def execute(self, requests):
    thread = threading.Thread(target=gates.pass_gate, args=("end",))
    thread.start()
    error = next(iter(ask("a").exec(decoupled=True))).error()
    gates.open_gate("end")
    thread.join()
    requests[0].get_response_sender().send(answer("circular BLS" in error.message()), FINAL)
'''), pbtxt(decoupled=True))  # fmt: skip
    assert [value(r) for r in repo.stream("a", ints(0))] == [1]


def test_a_bystander_of_a_circle_is_served(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.define("a", model('''
def execute(self, requests):
    if number(requests[0]):
        return [answer(value_of(ask("a").exec()))]
    return [answer(9)]
'''), pbtxt())  # fmt: skip
    withdraw = DefaultScheduler.withdraw
    bystander: list[Caller] = []

    def slow_withdraw(self: Any, ticket: Any) -> bool:
        if not bystander:
            bystander.append(Caller(repo.infer, "a", ints(0)))
            until(lambda: queued(repo, "a") == 2 or bystander[0].done)
            # Registered; give it time for its own look at the graph, which is a microsecond's work.
            threading.Event().wait(0.05)
        return withdraw(self, ticket)

    monkeypatch.setattr(DefaultScheduler, "withdraw", slow_withdraw)
    assert "circular BLS" in message(repo.infer("a", ints(1)))
    assert value(bystander[0].result()) == 9
