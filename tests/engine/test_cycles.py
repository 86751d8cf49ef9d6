"""Circular BLS fails at once and names its cycle; with enough instances the same call succeeds."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.engine.waiting import deadlock
from tests.engine import gates
from tests.engine.harness import DOUBLE, Caller, assert_all_idle, infer, ints, message, model, pbtxt, value

# A model here answers 1, or 1 more than the rest of its route answers: X is a list of digits, each
# of which picks the next model.
ROUTED = """
def request_of(self, received):
    route = pb.get_input_tensor_by_name(received, "X").as_numpy()
    if not len(route):
        return None
    return pb.InferenceRequest(
        model_name="abc"[route[0]], inputs=[pb.Tensor("X", route[1:])], requested_output_names=["Y"])
"""

SYNC = (
    """
def execute(self, requests):
    responses = []
    for received in requests:
        request = self.request_of(received)
        try:
            responses.append(answer(1 if request is None else 1 + value_of(request.exec())))
        except pb.TritonModelException as error:
            responses.append(pb.InferenceResponse(error=pb.TritonError(str(error))))
    return responses
"""
    + ROUTED
)

ASYNC = (
    """
async def execute(self, requests):
    responses = []
    for received in requests:
        request = self.request_of(received)
        try:
            responses.append(answer(1 if request is None else 1 + value_of(await self.send(request))))
        except pb.TritonModelException as error:
            responses.append(pb.InferenceResponse(error=pb.TritonError(str(error))))
    return responses
"""
    + ROUTED
)

SEND = {
    "await": "return await request.async_exec()",
    "gather": "return (await asyncio.gather(request.async_exec()))[0]",
    "gather of two": (
        "fine = pb.InferenceRequest(model_name='fine', inputs=[pb.Tensor('X', np.array([1], np.int32))],"
        " requested_output_names=[])\n"
        "    return (await asyncio.gather(fine.async_exec(), request.async_exec()))[1]"
    ),
    "task": "return await asyncio.create_task(self.wrapped(request))",
    "task group": (
        "async with asyncio.TaskGroup() as group:\n"
        "        task = group.create_task(self.wrapped(request))\n"
        "    return task.result()"
    ),
    "wait": "done, _ = await asyncio.wait([request.async_exec()])\n    return done.pop().result()",
    "as completed": ("for first in asyncio.as_completed([request.async_exec()]):\n        return await first"),
    "shield": "return await asyncio.shield(request.async_exec())",
    "wait_for without a limit": "return await asyncio.wait_for(request.async_exec(), None)",
    "to_thread": "return await asyncio.to_thread(request.exec)",
    "executor": (
        "run = contextvars.copy_context().run\n"
        "    return await asyncio.get_running_loop().run_in_executor(None, run, request.exec)"
    ),
    "sync exec in a coroutine": "return request.exec()",
    "stream": "return list(await request.async_exec(decoupled=True))[0]",
}

WRAPPED = """
async def wrapped(self, request):
    return await request.async_exec()
"""

# The request that it received is held by a coroutine (and a task) further in, as in most models.
HELPED = (
    """
async def execute(self, requests):
    return await asyncio.gather(*[self.one(r) for r in requests])

async def one(self, received):
    request = self.request_of(received)
    try:
        return answer(1 if request is None else 1 + value_of(await request.async_exec()))
    except pb.TritonModelException as error:
        return pb.InferenceResponse(error=pb.TritonError(str(error)))
"""
    + ROUTED
)

# Sync, decoupled: the route's next model is asked as a stream.
STREAM = (
    """
def execute(self, requests):
    for received in requests:
        request = self.request_of(received)
        sender = received.get_response_sender()
        try:
            value = 1
            if request is not None:
                for response in request.exec(decoupled=True):
                    if response.output_tensors() or response.has_error():
                        value += value_of(response)
            sender.send(answer(value), FINAL)
        except pb.TritonModelException as error:
            sender.send(pb.InferenceResponse(error=pb.TritonError(str(error))), FINAL)
"""
    + ROUTED
)


def _source(kind: str) -> str:
    if kind == "sync":
        return model(SYNC)
    if kind == "helped":
        return model(HELPED)
    return model(ASYNC + "\nasync def send(self, request):\n    " + SEND[kind] + "\n" + WRAPPED)


def _marked(kind: str) -> object:
    needs_311 = kind == "task group" and sys.version_info < (3, 11)
    return pytest.param(kind, marks=pytest.mark.skipif(needs_311, reason="TaskGroup is new in 3.11"))


KINDS = [_marked(kind) for kind in ["sync", "helped", *SEND]]


def define(repo: bls.ModelRepository, name: str, kind: str, count: int) -> None:
    repo.define(name, _source(kind), pbtxt(count))
    if kind == "gather of two" and not repo.ready("fine"):
        repo.define("fine", DOUBLE, pbtxt())


@pytest.mark.parametrize("kind", KINDS)
def test_all_instances_held_by_ancestors(repo: bls.ModelRepository, kind: str) -> None:
    define(repo, "a", kind, 3)
    assert value(repo.infer("a", ints(0, 0))) == 3
    text = message(repo.infer("a", ints(0, 0, 0)))
    assert "circular BLS: a -> a." in text
    assert "all 3 of its instances are held" in text
    assert "instance_group.count = 4 or more for 'a'" in text


@pytest.mark.parametrize("second", ["sync", "helped", "await", "gather", "to_thread"])
@pytest.mark.parametrize("first", KINDS)
def test_two_models_that_call_each_other(repo: bls.ModelRepository, first: str, second: str) -> None:
    define(repo, "a", first, 1)
    define(repo, "b", second, 1)
    text = message(repo.infer("a", ints(1, 0)))
    assert "circular BLS: a -> b -> a." in text
    assert "instance_group.count = 2 or more for 'a'" in text
    assert_all_idle(repo)
    assert value(repo.infer("a", ints(1))) == 2
    define(repo, "a", first, 2)
    assert value(repo.infer("a", ints(1, 0))) == 3


@pytest.mark.parametrize("third", ["sync", "to_thread", "helped"])
@pytest.mark.parametrize("second", ["sync", "gather"])
@pytest.mark.parametrize("first", ["sync", "await", "sync exec in a coroutine"])
def test_three_models(repo: bls.ModelRepository, first: str, second: str, third: str) -> None:
    define(repo, "a", first, 1)
    define(repo, "b", second, 1)
    define(repo, "c", third, 1)
    assert "circular BLS: a -> b -> c -> a." in message(repo.infer("a", ints(1, 2, 0)))
    assert "circular BLS: b -> c -> b." in message(repo.infer("a", ints(1, 2, 1)))
    assert_all_idle(repo)
    define(repo, "a", first, 2)
    assert value(repo.infer("a", ints(1, 2, 0))) == 4


def test_the_error_reaches_the_model_that_closed_the_circle(repo: bls.ModelRepository) -> None:
    repo.define("a", model('''
def execute(self, requests):
    response = ask("a").exec()
    return [answer(1 if response.has_error() else 0)]
'''), pbtxt())  # fmt: skip
    assert infer(repo, "a") == 1


@pytest.mark.parametrize("kind", ["sync", "await", "gather", "to_thread", "helped"])
def test_through_a_decoupled_model(repo: bls.ModelRepository, kind: str) -> None:
    repo.define("b", model(STREAM), pbtxt(decoupled=True))
    send = "return list(await request.async_exec(decoupled=True))[0]"
    repo.define("a", {
        "sync": model(SYNC.replace("request.exec()", "next(iter(request.exec(decoupled=True)))")),
        "await": model(ASYNC + f"\nasync def send(self, request):\n    {send}\n"),
        "gather": model(ASYNC + '''
async def send(self, request):
    return list((await asyncio.gather(request.async_exec(decoupled=True)))[0])[0]
'''),
        "to_thread": model(ASYNC + '''
async def send(self, request):
    return (await asyncio.to_thread(lambda: list(request.exec(decoupled=True))))[0]
'''),
        "helped": model(HELPED.replace(
            "await request.async_exec()", "list(await request.async_exec(decoupled=True))[0]")),
    }[kind], pbtxt())  # fmt: skip
    assert "circular BLS: a -> b -> a." in message(repo.infer("a", ints(1, 0)))
    assert_all_idle(repo)
    assert value(repo.infer("a", ints(1))) == 2


def test_a_decoupled_model_that_streams_from_itself(repo: bls.ModelRepository) -> None:
    repo.define("a", model(STREAM), pbtxt(decoupled=True))
    responses = list(repo.stream("a", ints(0)))
    assert "circular BLS: a -> a." in message(responses[-1])
    assert_all_idle(repo)
    repo.define("a", model(STREAM), pbtxt(2, decoupled=True))
    assert [value(r) for r in repo.stream("a", ints(0))] == [2]


ASYNC_DECOUPLED = (
    """
async def execute(self, requests):
    for received in requests:
        request = self.request_of(received)
        sender = received.get_response_sender()
        try:
            sender.send(answer(1 if request is None else 1 + value_of(await self.send(request))), FINAL)
        except pb.TritonModelException as error:
            sender.send(pb.InferenceResponse(error=pb.TritonError(str(error))), FINAL)

async def send(self, request):
    {send}
"""
    + ROUTED
)


def test_an_async_decoupled_model_may_call_itself(repo: bls.ModelRepository) -> None:
    send = "return list(await asyncio.to_thread(list, await request.async_exec(decoupled=True)))[0]"
    repo.define("a", model(ASYNC_DECOUPLED.format(send=send)), pbtxt(decoupled=True))
    assert [value(r) for r in repo.stream("a", ints(0, 0, 0))] == [4]


def test_an_async_decoupled_model_that_blocks_its_loop_for_itself(repo: bls.ModelRepository) -> None:
    send = "return list(request.exec(decoupled=True))[0]"
    repo.define("a", model(ASYNC_DECOUPLED.format(send=send)), pbtxt(decoupled=True))
    text = message(list(repo.stream("a", ints(0)))[-1])
    assert "circular BLS: a -> a." in text
    assert_all_idle(repo)
    assert [value(r) for r in repo.stream("a", {"X": ints()["X"][:0]})] == [1]
    repo.define("a", model(ASYNC_DECOUPLED.format(send=send)), pbtxt(2, decoupled=True))
    assert [value(r) for r in repo.stream("a", ints(0))] == [2]


def test_a_request_on_its_way_to_a_loop_that_blocks_is_run_elsewhere(repo: bls.ModelRepository) -> None:
    repo.define("a", model('''
async def execute(self, requests):
    for received in requests:
        if number(received):
            gates.open_gate("blocks")
            gates.pass_gate("go on")
        received.get_response_sender().send(answer(1), FINAL)
'''), pbtxt(2, decoupled=True))  # fmt: skip
    blocked = Caller(lambda: list(repo.stream("a", ints(1))))
    gates.pass_gate("blocks")
    for _ in range(2):
        assert [value(r) for r in Caller(lambda: list(repo.stream("a", ints(0)))).result()] == [1]
    gates.open_gate("go on")
    blocked.result()


def test_more_threads_wait_than_the_pool_has(repo: bls.ModelRepository) -> None:
    repo.define("a", model('''
async def execute(self, requests):
    if not number(requests[0]):
        return [answer(1)]
    calls = [asyncio.to_thread(ask("a").exec) for _ in range(40)]
    return [answer(sum(r.has_error() for r in await asyncio.gather(*calls)))]
'''), pbtxt())  # fmt: skip
    assert infer(repo, "a", 1) == 40


CALLS_AFTER_MEETING = {
    "sync": """
def execute(self, requests):
    other = "ab"[number(requests[0])]
    if gates.shared.get("met"):
        return [answer(1)]
    gates.shared["meeting"].wait(gates.LIMIT)
    gates.shared["met"] = True
    return [answer(1 + value_of(ask(other).exec()))]
""",
    "async": """
async def execute(self, requests):
    other = "ab"[number(requests[0])]
    if gates.shared.get("met"):
        return [answer(1)]
    gates.shared["meeting"].wait(gates.LIMIT)
    gates.shared["met"] = True
    return [answer(1 + value_of(await ask(other).async_exec()))]
""",
}


@pytest.mark.parametrize("second", CALLS_AFTER_MEETING)
@pytest.mark.parametrize("first", CALLS_AFTER_MEETING)
def test_two_callers_that_hold_what_the_other_needs(repo: bls.ModelRepository, first: str, second: str) -> None:
    gates.shared["meeting"] = threading.Barrier(2)
    repo.define("a", model(CALLS_AFTER_MEETING[first]), pbtxt())
    repo.define("b", model(CALLS_AFTER_MEETING[second]), pbtxt())
    callers = [Caller(repo.infer, "a", ints(1)), Caller(repo.infer, "b", ints(0))]
    responses = [c.result() for c in callers]
    failed = [r for r in responses if r.error is not None]
    assert len(failed) == 1
    assert "circular BLS: " in message(failed[0])
    assert "a -> b -> a" in message(failed[0]) or "b -> a -> b" in message(failed[0])
    assert_all_idle(repo)
    assert infer(repo, "a") == infer(repo, "b") == 1


@pytest.mark.parametrize("kind", CALLS_AFTER_MEETING)
def test_two_callers_that_both_want_one_more_instance(repo: bls.ModelRepository, kind: str) -> None:
    gates.shared["meeting"] = threading.Barrier(2)
    repo.define("a", model(CALLS_AFTER_MEETING[kind]), pbtxt(2))
    responses = [c.result() for c in [Caller(repo.infer, "a", ints(0)) for _ in range(2)]]
    assert sorted(r.error is None for r in responses) == [False, True]
    assert "circular BLS: a -> a." in next(message(r) for r in responses if r.error is not None)


def test_many_circles_at_once(repo: bls.ModelRepository) -> None:
    define(repo, "a", "sync", 2)
    define(repo, "b", "await", 2)

    def call(number: int) -> None:
        for _ in range(10):
            if number % 2:
                assert value(repo.infer("a", {"X": ints()["X"][:0]})) == 1
            else:
                assert "circular BLS" in message(repo.infer("a", ints(1, 0, 1, 0, 1, 0)))

    for caller in [Caller(call, n) for n in range(4)]:
        caller.result()


def test_a_circle_is_named_whatever_else_is_answered_meanwhile(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    define(repo, "a", "gather of two", 1)
    repo.define("fine", model('''
def execute(self, requests):
    gates.pass_gate("answer")
    return [answer(1)]
'''), pbtxt())  # fmt: skip
    is_waiting = deadlock._is_waiting

    def after_an_answer(node: Any) -> bool:
        gates.open_gate("answer")  # what this wakes is the loop of the circle
        while is_waiting(node) and not node.parent.task.get_loop()._ready:
            time.sleep(0.001)
        return is_waiting(node)

    monkeypatch.setattr(deadlock, "_is_waiting", after_an_answer)
    assert "circular BLS: a -> a." in message(repo.infer("a", ints(0)))
