"""Circular BLS fails at once and names its cycle; with enough instances the same call succeeds."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.engine.deadlocks import detection, wait_graph
from tests.engine import gates
from tests.engine.harness import Caller, assert_all_idle, infer, ints, message, queued, until, value
from tests.engine.sources import HOLDS, model, pbtxt

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


def routed(kind: str, call: str, more: str = "") -> str:
    """Source of a model that sends `request` on by this call."""
    return model(f"""
{kind} execute(self, requests):
    responses = []
    for received in requests:
        request = self.request_of(received)
        try:
            responses.append(answer(1 if request is None else 1 + value_of({call})))
        except pb.TritonModelException as error:
            responses.append(pb.InferenceResponse(error=pb.TritonError(str(error))))
    return responses
{more}{ROUTED}""")


# The request that it received is held by a coroutine (and a task) further in, as in most models.
HELPED = """
async def execute(self, requests):
    return await asyncio.gather(*[self.one(r) for r in requests])

async def one(self, received):
    request = self.request_of(received)
    try:
        return answer(1 if request is None else 1 + value_of(await request.async_exec()))
    except pb.TritonModelException as error:
        return pb.InferenceResponse(error=pb.TritonError(str(error)))
"""
KINDS = {
    "sync": routed("def", "request.exec()"),
    "await": routed("async def", "await request.async_exec()"),
    "gather": routed("async def", "(await asyncio.gather(request.async_exec()))[0]"),
    "task": routed("async def", "await asyncio.create_task(self.sent(request))",
                   "async def sent(self, request):\n    return await request.async_exec()"),
    "exec in a coroutine": routed("async def", "request.exec()"),
    "helped": model(HELPED + ROUTED),
}  # fmt: skip


@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_two_models_that_call_each_other(repo: bls.ModelRepository, first: str, second: str) -> None:
    repo.define("a", KINDS[first], pbtxt())
    repo.define("b", KINDS[second], pbtxt())
    text = message(repo.infer("a", ints(1, 0)))
    assert "circular BLS: a -> b -> a." in text
    assert "instance_group.count = 2 or more for 'a'" in text
    assert_all_idle(repo)
    assert value(repo.infer("a", ints(1))) == 2
    repo.define("a", KINDS[first], pbtxt(2))
    assert value(repo.infer("a", ints(1, 0))) == 3


@pytest.mark.parametrize("third", ["sync", "task", "helped"])
@pytest.mark.parametrize("first", ["sync", "await", "exec in a coroutine"])
def test_three_models(repo: bls.ModelRepository, first: str, third: str) -> None:
    for name, kind in zip("abc", (first, "gather", third), strict=True):
        repo.define(name, KINDS[kind], pbtxt())
    assert "circular BLS: a -> b -> c -> a." in message(repo.infer("a", ints(1, 2, 0)))
    assert "circular BLS: b -> c -> b." in message(repo.infer("a", ints(1, 2, 1)))
    assert_all_idle(repo)
    repo.define("a", KINDS[first], pbtxt(2))
    assert value(repo.infer("a", ints(1, 2, 0))) == 4


# Decoupled: the route's next model is asked as a stream.
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
ASYNC_STREAM = (
    """
async def execute(self, requests):
    for received in requests:
        request = self.request_of(received)
        sender = received.get_response_sender()
        try:
            sender.send(answer(1 if request is None else 1 + value_of({})), FINAL)
        except pb.TritonModelException as error:
            sender.send(pb.InferenceResponse(error=pb.TritonError(str(error))), FINAL)
"""
    + ROUTED
)
AWAITED = "list(await request.async_exec(decoupled=True))[0]"
ASKS_STREAM = {
    "sync": routed("def", "next(iter(request.exec(decoupled=True)))"),
    "await": routed("async def", AWAITED),
    "helped": model(HELPED.replace("await request.async_exec()", AWAITED) + ROUTED),
}  # fmt: skip


@pytest.mark.parametrize("kind", ASKS_STREAM)
def test_through_a_decoupled_model(repo: bls.ModelRepository, kind: str) -> None:
    repo.define("b", model(STREAM), pbtxt(decoupled=True))
    repo.define("a", ASKS_STREAM[kind], pbtxt())
    assert "circular BLS: a -> b -> a." in message(repo.infer("a", ints(1, 0)))
    assert_all_idle(repo)
    assert value(repo.infer("a", ints(1))) == 2


def test_an_async_decoupled_model_may_call_itself(repo: bls.ModelRepository) -> None:
    call = "list(await asyncio.to_thread(list, await request.async_exec(decoupled=True)))[0]"
    repo.define("a", model(ASYNC_STREAM.format(call)), pbtxt(decoupled=True))
    assert [value(r) for r in repo.stream("a", ints(0, 0, 0))] == [4]


@pytest.mark.parametrize("source", [STREAM, ASYNC_STREAM.format("list(request.exec(decoupled=True))[0]")])
def test_a_decoupled_model_that_blocks_for_itself(repo: bls.ModelRepository, source: str) -> None:
    repo.define("a", model(source), pbtxt(decoupled=True))
    assert "circular BLS: a -> a." in message(list(repo.stream("a", ints(0)))[-1])
    assert_all_idle(repo)
    assert [value(r) for r in repo.stream("a", {"X": ints()["X"][:0]})] == [1]
    repo.define("a", model(source), pbtxt(2, decoupled=True))
    assert [value(r) for r in repo.stream("a", ints(0))] == [2]


CALLS_AFTER_MEETING = {
    kind: model(f"""
{kind} execute(self, requests):
    other = "ab"[number(requests[0])]
    if gates.shared.get("met"):
        return [answer(1)]
    gates.shared["meeting"].wait(gates.LIMIT)
    gates.shared["met"] = True
    return [answer(1 + value_of({call}))]
""")
    for kind, call in {"def": "ask(other).exec()", "async def": "await ask(other).async_exec()"}.items()
}


@pytest.mark.parametrize("second", CALLS_AFTER_MEETING)
@pytest.mark.parametrize("first", CALLS_AFTER_MEETING)
def test_two_callers_that_hold_what_the_other_needs(repo: bls.ModelRepository, first: str, second: str) -> None:
    gates.shared["meeting"] = threading.Barrier(2)
    repo.define("a", CALLS_AFTER_MEETING[first], pbtxt())
    repo.define("b", CALLS_AFTER_MEETING[second], pbtxt())
    callers = [Caller(repo.infer, "a", ints(1)), Caller(repo.infer, "b", ints(0))]
    responses = [c.result() for c in callers]
    failed = [r for r in responses if r.error is not None]
    assert len(failed) == 1
    assert "circular BLS: " in message(failed[0])
    assert "a -> b -> a" in message(failed[0]) or "b -> a -> b" in message(failed[0])
    assert_all_idle(repo)
    assert infer(repo, "a") == infer(repo, "b") == 1


def test_many_circles_at_once(repo: bls.ModelRepository) -> None:
    repo.define("a", KINDS["sync"], pbtxt(2))
    repo.define("b", KINDS["await"], pbtxt(2))

    def call(number: int) -> None:
        for _ in range(10):
            if number % 2:
                assert value(repo.infer("a", {"X": ints()["X"][:0]})) == 1
            else:
                assert "circular BLS" in message(repo.infer("a", ints(1, 0, 1, 0, 1, 0)))

    for caller in [Caller(call, n) for n in range(4)]:
        caller.result()


def test_a_cycle_through_many_instances(repo: bls.ModelRepository) -> None:
    repo.define("a", KINDS["await"], pbtxt(32))
    text = message(repo.infer("a", ints(*[0] * 33)))
    assert "circular BLS: a -> a." in text
    assert "all 32 of its instances" in text


@pytest.mark.parametrize("kind", ["sync", "await"])
def test_a_search_visits_only_what_the_request_needs(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    visited: list[Any] = []
    monkeypatch.setattr(detection, "needs", lambda node: (visited.append(node), wait_graph.needs(node))[1])
    others = [f"other{number}" for number in range(20)]
    for name in others:
        repo.define(name, HOLDS, pbtxt())
    for name in "abc":
        repo.define(name, KINDS[kind], pbtxt())
    callers = [Caller(infer, repo, name, 1) for name in others for _ in range(2)]  # one runs, one is queued
    until(lambda: all(queued(repo, name) == 1 for name in others))
    visited.clear()
    assert "circular BLS: a -> b -> c -> a." in message(repo.infer("a", ints(1, 2, 0)))
    assert {node.model.name for node in visited if not isinstance(node, asyncio.Future)} == set("abc")
    if kind == "sync":
        assert len(visited) == 6  # three requests and three executions, each once
    gates.open_gate("go on")
    assert [caller.result() for caller in callers] == [1] * len(callers)
