"""Whatever a model does, its callers get an error response and everybody else is served."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.engine.tensors import received_inputs
from tests.engine import gates
from tests.engine.harness import Caller, assert_all_idle, idle, ints, message, queued, row, until, value
from tests.engine.sources import model, pbtxt

WORDS = """
class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no words")
    __repr__ = __str__

def deeper():
    return deeper() + 1
"""

# What execute does for X = 1, and what the message must contain. For X = 0 it answers 1.
RAISES = {
    "an exception": ("raise ValueError('wrong <b>words</b>')", "ValueError: wrong <b>words</b>"),
    "a model exception": ("raise pb.TritonModelException('not today')", "not today"),
    "sys.exit": ("sys.exit(5)", "SystemExit: 5"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt('of the model')", "KeyboardInterrupt: of the model"),
    "GeneratorExit": ("raise GeneratorExit('odd')", "GeneratorExit: odd"),
    "StopIteration": ("raise StopIteration('odd')", "StopIteration"),
    "recursion": ("deeper()", "RecursionError: maximum recursion depth exceeded"),
    "memory": ("raise MemoryError('no room')", "MemoryError: no room"),
}  # fmt: skip

AGAIN = "requests[0].set_release_flags(pb.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)"
RETURNS = {
    "None": ("return None", "and the request was not answered"),
    "[None]": ("return [None]", "and the request was not answered"),
    "again": (f"{AGAIN}; return None", "model is not configured to handle such a flag. Configure it: "),
    "[again]": (f"{AGAIN}; return [None]", "model is not configured to handle such a flag. Configure it: "),
    "nothing": ("return []", "size is:1, and InferenceResponse(s) size is:0"),
    "two": ("return [answer(1), answer(2)]", "InferenceResponse(s) size is:2"),
    "a response": ("return answer(1)", "Expected a list in the execute return"),
    "a tuple": ("return (answer(1),)", "Expected a list in the execute return"),
    "a generator": ("return (r for r in [answer(1)])", "Expected a list in the execute return"),
    "a number": ("return [1]", "Expected an 'InferenceResponse' object"),
    "a request": ("return [requests[0]]", "Expected an 'InferenceResponse' object"),
    "a list in a list": ("return [[answer(1)]]", "Expected an 'InferenceResponse' object"),
    "a dict": ("return {'Y': 1}", "Expected a list in the execute return"),
    "False": ("return False", "Expected a list in the execute return"),
    "a class": ("return pb.InferenceResponse", "Expected a list in the execute return"),
    "an unreadable response": ("r = answer(1); del r._outputs; return [r]", "_outputs"),
}


def misbehaving(does: str, kind: str = "def") -> str:
    return model(f"""
{kind} execute(self, requests):
    if number(requests[0]) == 1:
        {does}
    return [answer(1)]
""").replace("class TritonPythonModel", WORDS + "\nclass TritonPythonModel")


# How a request gets there; each gives the answer to X = 1.
def inline(repo: bls.ModelRepository) -> Any:
    return Caller(repo.infer, "bad", ints(1)).result()


def worker(repo: bls.ModelRepository) -> Any:
    return asyncio.run(repo.infer_async("bad", ints(1)))


def streamed(repo: bls.ModelRepository) -> Any:
    return list(repo.stream("bad", ints(1)))[-1]


WAYS = {"inline": inline, "worker": worker, "streamed": streamed}
CASES = {**RAISES, **RETURNS}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_model_that_misbehaves(repo: bls.ModelRepository, kind: str, case: str, way: str) -> None:
    does, words = CASES[case]
    if kind == "async def" and case == "StopIteration":
        words = "coroutine raised StopIteration"
    repo.define("bad", misbehaving(does, kind), pbtxt())
    text = message(WAYS[way](repo))
    assert words in text
    assert "bad_0" in text  # which instance
    assert_all_idle(repo)
    for _ in range(2):  # and again, on the same instance
        assert value(repo.infer("bad", ints(0))) == 1
        assert value(list(repo.stream("bad", ints(0)))[-1]) == 1
    assert words in message(WAYS[way](repo))
    repo.unload("bad")


def test_an_error_ends_where_its_text_would_in_c(repo: bls.ModelRepository) -> None:
    repo.define("bad", misbehaving("raise ValueError('short\\0 of this')"), pbtxt())
    assert message(repo.infer("bad", ints(1))).endswith("message: ValueError: short")
    returned = "return [pb.InferenceResponse(error=pb.TritonError('short\\0 of this'))]"
    repo.define("bad", misbehaving(returned), pbtxt())
    assert message(repo.infer("bad", ints(1))) == "short"


def test_a_callee_whose_name_is_no_text(repo: bls.ModelRepository) -> None:
    call = "e = pb.InferenceRequest(model_name=b'\\x80', inputs=[], requested_output_names=[]).exec().error()"
    repo.define("bad", misbehaving(f"{call}; return [pb.InferenceResponse(error=e)]"), pbtxt())
    with bls.profile() as session:
        passed_on = message(repo.infer("bad", ints(1)))
    assert r"Model \x80 - Error when running inference: " in passed_on
    render(session.record).html.encode()
    repo.define("bad", misbehaving(f"{call}; e.message()"), pbtxt())
    assert "can't decode byte 0x80 in position 6: invalid start byte" in message(repo.infer("bad", ints(1)))


def test_other_requests_in_flight_are_answered(repo: bls.ModelRepository) -> None:
    repo.define("bad", model('''
def execute(self, requests):
    gates.pass_gate("start")
    if number(requests[0]) % 2:
        sys.exit(1)
    return [answer(number(requests[0]))]
'''), pbtxt(2))  # fmt: skip
    callers = [Caller(repo.infer, "bad", ints(n)) for n in range(10)]
    until(lambda: queued(repo, "bad") == 8)
    gates.open_gate("start")
    for n, caller in enumerate(callers):
        response = caller.result()
        if n % 2:
            assert "SystemExit: 1" in message(response)
        else:
            assert value(response) == n


def test_a_chain_of_async_calls_without_end(repo: bls.ModelRepository) -> None:
    repo.define("a", model('''
async def execute(self, requests):
    sender = requests[0].get_response_sender()
    try:
        stream = await ask("a").async_exec(decoupled=True)
        response = (await asyncio.to_thread(list, stream))[-1] if number(requests[0]) else None
    finally:
        sender.send(answer(1), FINAL)
'''), pbtxt(decoupled=True))  # fmt: skip
    # Fire and forget, endlessly: each answers at once, and the chain ends by the limit on its length.
    responses = list(repo.stream("a", ints(0)))
    assert responses
    until(lambda: idle(repo, "a") == 1)
    repo.unload("a")


NOTE = """
def attempt(self, name, call, *args):
    try:
        call(*args)
        gates.log.put((name, ""))
    except BaseException as error:
        gates.log.put((name, str(error)))
"""

DECOUPLED = {
    "sends nothing": ("", [], "dropped before its final flag"),
    "forgets the final flag": ("sender.send(answer(1))", [1], "dropped before its final flag"),
    "raises at once": ("raise ValueError('first')", [], "ValueError: first"),
    "raises after responses": (
        "sender.send(answer(1)); sender.send(answer(2)); raise ValueError('third')",
        [1, 2], "ValueError: third"),
    "exits after responses": ("sender.send(answer(1)); sys.exit(2)", [1], "SystemExit: 2"),
    "an error with the final flag": (
        "sender.send(answer(1))\n    sender.send(pb.InferenceResponse(error=pb.TritonError('late')), FINAL)",
        [1], "late"),
    "returns a list": ("return [answer(1)]", [], "is using the decoupled mode"),
    "returns a list after a response": ("sender.send(answer(1)); return [answer(1)]", [1], "decoupled mode"),
    "raises without words": ("sender.send(answer(1)); raise Unprintable()", [1], "Unprintable"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("case", DECOUPLED)
def test_a_decoupled_model_that_misbehaves(repo: bls.ModelRepository, case: str, kind: str) -> None:
    does, values, words = DECOUPLED[case]
    source = model(f"""
{kind} execute(self, requests):
    sender = requests[0].get_response_sender()
    if number(requests[0]) == 0:
        sender.send(answer(9), FINAL)
        return None
    {does or "pass"}
""")
    source = source.replace("class TritonPythonModel", WORDS + "\nclass TritonPythonModel")
    repo.define("bad", source, pbtxt(decoupled=True))
    for _ in range(2):
        responses = Caller(lambda: list(repo.stream("bad", ints(1)))).result()
        assert [value(r) for r in responses[:-1]] == values
        assert words in message(responses[-1])
        assert [value(r) for r in repo.stream("bad", ints(0))] == [9]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_two_responses_of_a_plain_model(repo: bls.ModelRepository, kind: str, way: str) -> None:
    repo.define("bad", model(NOTE + f'''
{kind} execute(self, requests):
    sender = requests[0].get_response_sender()
    self.attempt("only final", sender.send, None, FINAL)
    self.attempt("first", sender.send, answer(1))
    self.attempt("second", sender.send, answer(2))
    self.attempt("final", sender.send, None, FINAL)
    self.attempt("third", sender.send, answer(2), FINAL)
'''), pbtxt())  # fmt: skip
    assert value(WAYS[way](repo)) == 1
    until(lambda: gates.log.qsize() == 5)
    notes = dict(gates.logged())
    assert "cannot send complete final before sending a response" in notes["only final"]
    assert notes["first"] == ""
    assert "cannot send more than one response" in notes["second"]
    assert notes["final"] == ""
    assert notes["third"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("does", ["sender.send(answer(6), FINAL)", "del sender"])
def test_a_plain_model_whose_sender_is_used_or_dropped_later(
    repo: bls.ModelRepository, does: str, kind: str, way: str
) -> None:
    repo.define("bad", model(f'''
{kind} execute(self, requests):
    sender = requests[0].get_response_sender()
    def later(sender):
        gates.pass_gate("later")
        {does}
    threading.Thread(target=later, args=(sender,)).start()
    gates.open_gate("later")
'''), pbtxt())  # fmt: skip
    response = WAYS[way](repo)
    if "send(" in does:
        assert value(response) == 6
    else:
        assert "execute returned None and the request was not answered" in message(response)


@pytest.mark.parametrize("where", ["list", "attribute cycle", "traceback"])
def test_a_request_that_the_model_keeps(repo: bls.ModelRepository, where: str) -> None:
    keeps = {
        "list": "self.kept = [requests[0]]; self.kept.clear()",
        "attribute cycle": "box = [requests[0]]; box.append(box)",
        "traceback": "try:\n        1 / 0\n    except ZeroDivisionError as e:\n        self_kept = e",
    }[where]
    repo.define("bad", model(f'''
def execute(self, requests):
    {keeps}
    return None
'''), pbtxt())  # fmt: skip
    caller = Caller(repo.infer, "bad", ints(1))
    until(lambda: gc.collect() >= 0 and caller.done)
    assert "not answered" in message(caller.result())


SCHEDULERS = {"plain": "", "batching": "max_batch_size: 4 ", "dynamic": "max_batch_size: 4 dynamic_batching {} "}


@pytest.mark.parametrize("config", SCHEDULERS.values(), ids=SCHEDULERS)
@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("stay", [True, False])
def test_an_unanswered_request_is_noticed(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch, stay: bool, kind: str, config: str
) -> None:
    """Also where callers' frames keep the request that a scheduler takes over, as on some Pythons only."""
    if stay:
        monkeypatch.setattr("bls_notebook.engine.home_call.ARGUMENTS_STAY", True)
        monkeypatch.setattr("bls_notebook.engine.schedulers.lifecycle.ARGUMENTS_STAY", True)
    elif received_inputs.ARGUMENTS_STAY:
        pytest.skip("this Python needs it")
    repo.define("m", model(f"{kind} execute(self, requests):\n    requests[0].get_response_sender()"), pbtxt() + config)
    response = Caller(repo.infer, "m", row(1) if config else ints(1)).result()
    assert "execute returned None" in message(response)


@pytest.mark.parametrize("kind", ["", "async "])
def test_a_cancelled_error_of_the_model_is_an_exception_like_others(repo: bls.ModelRepository, kind: str) -> None:
    repo.define("a", model(f"{kind}def execute(self, requests): raise asyncio.CancelledError('gone')"), pbtxt())
    assert "message: CancelledError: gone" in message(repo.infer("a", ints(1)))
