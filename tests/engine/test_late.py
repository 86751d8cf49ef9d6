"""Requests that find a model version just as another takes its place, and what comes after its end."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.waiting.event_loops import ModelLoop, mailbox
from tests.engine import gates
from tests.engine.harness import DOUBLE, Caller, infer, ints, message, model, pbtxt, until, value
from tests.engine.test_reshape import ECHO, config

SILENT = model("""
def execute(self, requests):
    return None
""")


@pytest.fixture
def late(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has the next request find a version that has been replaced since: the first argument, redefined."""

    def replaced(*definition: str) -> None:
        name = definition[0]
        old = repo._server.find(name)
        repo.define(*definition)
        find, found = Server.find, [old]

        def first(self: Server, asked: str, version: int = -1) -> Any:
            return found.pop() if found and asked == name else find(self, asked, version)

        monkeypatch.setattr(Server, "find", first)
        monkeypatch.setattr(repo._sender, "request", with_find(repo, monkeypatch))

    return replaced


def with_find(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Making a request looks the model up too, and is not what is tested."""
    first = Server.find
    made = repo._sender.request

    def request(*arguments: Any, **options: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(Server, "find", lambda *_: None)
            out = made(*arguments, **options)
        assert Server.find is first
        return out

    return request


def test_the_version_that_serves_now_answers(repo: bls.ModelRepository, late: Any) -> None:
    repo.define("m", SILENT, pbtxt())
    late("m", DOUBLE, pbtxt())
    assert infer(repo, "m", 4) == 8


def test_nobody_holds_a_late_request_that_is_not_answered(repo: bls.ModelRepository, late: Any) -> None:
    repo.define("m", DOUBLE, pbtxt())
    late("m", SILENT, pbtxt())
    assert "the request was not answered" in message(Caller(repo.infer, "m", ints(1)).result(5))


@pytest.mark.parametrize(("now", "sees"), [([6], (6,)), ([3, 2], (3, 2)), ([6, 1], (6, 1))])
def test_a_late_request_is_reshaped_anew(
    repo: bls.ModelRepository, late: Any, now: list[int], sees: tuple[int, ...]
) -> None:
    repo.define("m", ECHO, config([2, 3], [1, 6]))
    late("m", ECHO, config([2, 3], now))
    gates.logged()
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    np.testing.assert_array_equal(repo.infer("m", {"X": array})["Y"].as_numpy(), array)
    assert gates.logged() == [sees]


# -- loops ---------------------------------------------------------------------------------------------


def loops() -> int:
    return sum(thread.name.startswith("bls-loop-") for thread in threading.enumerate())


def test_requests_that_come_at_once_share_one_loop(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    before = loops()
    repo.define("m", model("""
async def execute(self, requests):
    for r in requests:
        r.get_response_sender().send(answer(threading.get_ident()  % 2**31), flags=FINAL)
"""), pbtxt(decoupled=True))  # fmt: skip
    made, both = ModelLoop.__init__, threading.Barrier(2)

    def slow(self: ModelLoop, *arguments: Any) -> None:
        try:
            both.wait(0.3)  # nobody else may get here before it is there
        except threading.BrokenBarrierError:
            pass
        made(self, *arguments)

    monkeypatch.setattr(ModelLoop, "__init__", slow)
    callers = [Caller(lambda: value(next(iter(repo.stream("m", ints(1)))))) for _ in range(2)]
    assert len({c.result() for c in callers}) == 1
    assert loops() == before + 1
    repo.unload("m")
    until(lambda: loops() == before)


def test_what_goes_on_after_its_final_flag_starts_no_new_loop(repo: bls.ModelRepository) -> None:
    before = loops()
    repo.define("m", model("""
async def execute(self, requests):
    for r in requests:
        r.get_response_sender().send(answer(1), flags=FINAL)
    gates.open_gate("sent")
    while not gates.gate("go").is_set():
        await asyncio.sleep(0.001)
"""), pbtxt(decoupled=True))  # fmt: skip
    assert [value(r) for r in repo.stream("m", ints(1))] == [1]
    gates.pass_gate("sent")
    repo.unload("m")
    gates.open_gate("go")
    until(lambda: loops() == before)


def test_a_loop_ends_with_nobody_who_holds_it() -> None:
    loop = ModelLoop("m")
    alive = weakref.ref(loop.loop)
    post = mailbox(loop.loop)
    ran = threading.Event()
    loop.post(ran.set)
    assert ran.wait(gates.LIMIT)
    thread = loop._thread
    loop.stop()
    thread.join(gates.LIMIT)
    del loop, thread
    gc.collect()
    assert alive() is None
    post.post(ran.clear)  # is silent
    assert ran.is_set()
