"""A sender that is lost in a cycle of references is found while its caller waits, and only then."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.engine import runner
from bls_notebook.engine.waiting import lost_senders as left_to_senders
from tests.engine.harness import Caller, infer, ints, message, model, pbtxt, until, value

LOSES = """
{}def execute(self, requests):
    sender = requests[0].get_response_sender()
    def again():
        again.sender = sender
    again()
"""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(left_to_senders, "FIRST_AFTER", 0.01)
    monkeypatch.setattr(left_to_senders, "SHARE", 0)
    gc.disable()  # nothing else causes a collection
    yield
    gc.enable()


@pytest.mark.parametrize("kind", ["", "async "])
def test_a_decoupled_model_that_loses_its_sender(repo: bls.ModelRepository, kind: str) -> None:
    repo.define("a", model(LOSES.format(kind)), pbtxt(decoupled=True))
    (response,) = Caller(lambda: list(repo.stream("a", ints(0)))).result()
    assert "the response sender was dropped before its final flag was sent" in message(response)


def test_a_sender_in_the_frame_of_a_model_whose_callee_raised(repo: bls.ModelRepository) -> None:
    repo.define("raises", model("def execute(self, requests): raise RuntimeError"), pbtxt())
    repo.define("a", model('''
def execute(self, requests):
    sender = requests[0].get_response_sender()
    response = ask("raises").exec()
    sender.send(pb.InferenceResponse(error=response.error()))
'''), pbtxt(decoupled=True))  # fmt: skip
    responses = Caller(lambda: list(repo.stream("a", ints(0)))).result()
    assert "dropped before its final flag" in message(responses[-1])


def test_a_model_that_is_not_decoupled(repo: bls.ModelRepository) -> None:
    repo.define("a", model(LOSES.format("")), pbtxt())
    assert "returned None" in message(Caller(repo.infer, "a", ints(0)).result())

    async def ask() -> Any:
        return await repo.infer_async("a", ints(0))

    assert "returned None" in message(Caller(asyncio.run, ask()).result())


def test_a_sender_that_is_held_is_waited_for(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    collections = []
    monkeypatch.setattr(gc, "collect", lambda: collections.append(1))
    repo.define("a", model('''
def execute(self, requests):
    gates.shared["sender"] = requests[0].get_response_sender()
'''), pbtxt(decoupled=True))  # fmt: skip
    repo.define("send", model('''
def execute(self, requests):
    gates.shared.pop("sender").send(answer(4), FINAL)
    return [answer(1)]
'''), pbtxt())  # fmt: skip
    caller = Caller(lambda: list(repo.stream("a", ints(0))))
    until(lambda: len(collections) == 3)
    assert not caller.done
    assert infer(repo, "send") == 1
    assert [value(r) for r in caller.result()] == [4]
    until(lambda: left_to_senders._alarm._alarm is None)
    assert not list(left_to_senders._left)
    assert len(collections) <= 4


def test_no_collection_where_execute_answers(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[Any] = []
    monkeypatch.setattr(runner, "leave_to_senders", left.append)
    repo.define("a", model('''
def execute(self, requests):
    for request in requests:
        sender = request.get_response_sender()
        sender.send(answer(1), FINAL)
'''), pbtxt(decoupled=True))  # fmt: skip
    assert [value(r) for r in repo.stream("a", ints(0))] == [1]
    assert not left
