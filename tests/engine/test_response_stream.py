"""Streams: responses of decoupled models, in order and whole, walked or left."""

from __future__ import annotations

import asyncio

import pytest

import bls_notebook as bls
from bls_notebook.engine import ticket
from tests.engine import gates
from tests.engine.harness import assert_all_idle, infer, ints, value
from tests.engine.sources import DOUBLE, model, pbtxt

COUNTER = model("""
async def execute(self, requests):
    sender = requests[0].get_response_sender()
    for n in range(number(requests[0])):
        sender.send(answer(n))
        await asyncio.sleep(0)
    sender.send(flags=FINAL)
""")


def test_streams_sync_and_async(repo: bls.ModelRepository) -> None:
    repo.define("counter", COUNTER, pbtxt(decoupled=True))
    repo.define("double", DOUBLE, pbtxt())
    assert [value(r) for r in repo.stream("counter", ints(5))] == list(range(5))
    assert [value(r) for r in repo.stream("double", ints(5))] == [10]  # a plain model answers once

    async def walk() -> list[list[int]]:
        async def one(n: int) -> list[int]:
            return [value(r) async for r in repo.stream_async("counter", ints(n))]

        return await asyncio.gather(*[one(n) for n in range(1, 9)])

    assert asyncio.run(walk()) == [list(range(n)) for n in range(1, 9)]


def test_responses_keep_their_order_and_none_is_lost(repo: bls.ModelRepository) -> None:
    repo.define("a", model('''
def execute(self, requests):
    sender = requests[0].get_response_sender()
    def send(first):
        for n in range(first, 600, 3):
            sender.send(answer(n))
    threads = [threading.Thread(target=send, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sender.send(answer(-1), FINAL)
'''), pbtxt(decoupled=True))  # fmt: skip
    for _ in range(3):
        got = [value(r) for r in repo.stream("a", ints(0))]
        assert got[-1] == -1
        assert sorted(got[:-1]) == list(range(600))
        for k in range(3):
            of_thread = [n for n in got[:-1] if n % 3 == k]
            assert of_thread == sorted(of_thread)
    assert_all_idle(repo)
    repo.unload("a")


def test_dropping_an_iterator_loses_nothing_else(repo: bls.ModelRepository) -> None:
    repo.define("counter", COUNTER, pbtxt(decoupled=True))
    repo.define("a", model('''
def execute(self, requests):
    for _ in range(20):
        for response in ask("counter", 50).exec(decoupled=True):
            break
    return [answer(1)]
'''), pbtxt())  # fmt: skip
    assert infer(repo, "a") == 1
    assert_all_idle(repo)
    repo.unload("counter")


def test_responses_that_pile_up_are_told(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    repo.define("quick", model('''
def execute(self, requests):
    sender = requests[0].get_response_sender()
    for n in range(8):
        sender.send(answer(n))
    sender.send(flags=FINAL)
    gates.open_gate("sent")
''').replace("import", "import tests.engine.gates as gates\nimport", 1), pbtxt(decoupled=True))  # fmt: skip

    def told() -> list[bls.Response]:
        gates.reset()
        stream = repo.stream("quick", ints(0))
        found = [next(stream)]
        gates.pass_gate("sent")
        return [*found, *stream]

    assert not any(response.warnings for response in told())
    monkeypatch.setattr(ticket, "UNREAD_BYTES", 2 << 10)
    found = told()
    assert [value(response) for response in found] == list(range(8))
    texts = [text for response in found for text in response.warnings]
    assert "model 'quick': 4 responses to one request (16 B) wait to be read" in " ".join(texts)
    assert [record.message for record in caplog.records] == texts
    repo.strict = True
    errors = [response.error for response in told() if response.error is not None]
    assert errors
    assert "wait to be read" in errors[0].message()
