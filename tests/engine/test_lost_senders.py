"""Senders lost in reference cycles, and destructors that run while a context is restored."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.engine import batch_runner
from bls_notebook.engine import batch_runner as left_to_senders
from bls_notebook.engine.waiting.clock import Recheck
from tests.engine.harness import Caller, infer, ints, message, until, value
from tests.engine.sources import model, pbtxt

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
    monkeypatch.setattr(Recheck, "share", 0)
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
    until(lambda: left_to_senders._left._alarm._alarm is None)
    assert not list(left_to_senders._left._objects)
    assert len(collections) <= 4


def test_no_collection_where_execute_answers(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[Any] = []
    monkeypatch.setattr(batch_runner, "leave_to_senders", left.append)
    repo.define("a", model('''
def execute(self, requests):
    for request in requests:
        sender = request.get_response_sender()
        sender.send(answer(1), FINAL)
'''), pbtxt(decoupled=True))  # fmt: skip
    assert [value(r) for r in repo.stream("a", ints(0))] == [1]
    assert not left


# For each count, garbage is collected a step later; for one of them while the body's context is put back.
CODE = """
import gc
from contextvars import ContextVar
import bls_notebook as bls
from bls_notebook.pb_utils import Logger
from bls_notebook.pb_utils._runtime import caller_var

class Talks:
    def __init__(self):
        self.me = self
    def __del__(self):
        caller_var.get()

def body():
    gc.collect()
    for _ in range(count):
        Talks()

for name in "abc":
    ContextVar(name).set(1)
repository = bls.ModelRepository()
gc.freeze()  # so that collecting is quick
gc.set_threshold(60, 1000, 1000)
for count in range(70):
    repository.run(body)
    gc.disable()
    assert caller_var.get() is None, count
    gc.enable()
"""


@pytest.mark.slow
def test_a_destructor_that_asks_who_is_running() -> None:
    """Python before 3.12 would keep a dangling pointer to the execution that has just ended."""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", CODE], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("commands", ["c\n", "break 56\nc\n", "n\nc\n"])
@pytest.mark.parametrize("kind", ["", "async "])
def test_a_model_that_was_in_pdb(repo: bls.ModelRepository, kind: str, commands: str) -> None:
    repo.define("a", model(f'''
{kind}def execute(self, requests):
    import io, pdb
    debugger = pdb.Pdb(stdin=io.StringIO({commands!r}), stdout=io.StringIO(), nosigint=True)
    debugger.set_trace()
    del debugger
    if number(requests[0]):
        return [answer(1)]
'''), pbtxt())  # fmt: skip
    before = sys.gettrace()
    for _ in range(2):
        assert "returned None" in message(Caller(repo.infer, "a", ints(0)).result())
    assert infer(repo, "a", 1) == 1
    assert sys.gettrace() is before
