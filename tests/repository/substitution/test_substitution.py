"""`substitute`: keys of calls, answers of every kind, waits, the real model beneath, entry and exit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook import pb_utils
from bls_notebook.engine import observer
from bls_notebook.extending import host_of
from bls_notebook.repository.substitution.call import ASK, MADE_UP, Call, Last, Waiter
from bls_notebook.repository.substitution.substitution import Substitution
from tests.engine.harness import Caller, ctrl_c_once, message, until
from tests.repository.models import FLOATS, values
from tests.waiting import LIMIT

Repository = bls.ModelRepository
DECOUPLED = FLOATS + " model_transaction_policy { decoupled: true }"
HEAD = """
import asyncio
import numpy as np
import triton_python_backend_utils as pb_utils

def ask(name, x):
    return pb_utils.InferenceRequest(
        model_name=name, requested_output_names=["Y"], inputs=[pb_utils.Tensor("X", np.float32([x]))])

def value(response):
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return float(response.output_tensors()[0].as_numpy()[0])

def response(*values):
    return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.float32(values))])

class TritonPythonModel:
"""


def returning(expression: str) -> str:
    return f"{HEAD}    def execute(self, requests):\n        return [{expression} for r in requests]\n"


DOUBLE = returning("response(*(r.inputs()[0].as_numpy() * 2))")
FRONT = returning('response(value(ask("double", 3).exec()))')
TWICE = returning('response(value(ask("front", 3).exec()), value(ask("front", 4).exec()))')
GATHER = f"""{HEAD}
    async def execute(self, requests):
        sent = [("double", 1), ("double", 2), ("half", 3), ("double", 4)]
        calls = [ask(name, x).async_exec() for name, x in sent]
        return [response(*map(value, await asyncio.gather(*calls)))]
"""
WORDS = f"""{HEAD}
    def execute(self, requests):
        for r in requests:
            sender = r.get_response_sender()
            sender.send(response(1))
            sender.send(response(2), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
X = {"X": np.ones(1, np.float32)}


@pytest.fixture
def repo(repo: Repository) -> Repository:
    repo.define("double", DOUBLE, FLOATS)
    repo.define("half", DOUBLE.replace("* 2", "/ 2"), FLOATS)
    repo.define("front", FRONT, FLOATS)
    return repo


def response(*numbers: float) -> pb_utils.InferenceResponse:
    return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.float32(numbers))])


class By:
    """Answers by a function that yields."""

    def __init__(self, answer: Callable[[Call, Waiter], Any]) -> None:
        self.answer = answer


def fixed(*answers: Any) -> By:
    def answer(call: Call, wait: Waiter) -> Iterator[Any]:
        yield from answers

    return By(answer)


def until_left(begun: threading.Event) -> By:
    """Wait until the substitution ends, then answer with 1."""

    def answer(call: Call, wait: Waiter) -> Iterator[Any]:
        begun.set()
        assert not wait.sleep(3600)
        yield response(1)

    return By(answer)


def test_keys_are_those_of_the_senders_calls(repo: Repository) -> None:
    repo.define("twice", TWICE, FLOATS)
    repo.infer("front", X)
    with Substitution(repo, {"double": fixed(ASK)}) as substitution:
        repo.infer("twice", X)
        repo.infer("front", X)
        repo.infer("double", X)
    twice = ((), "twice", 0)
    assert [call.key for call in substitution.calls] == [
        ((twice, "front", 0), "double", 0),
        ((twice, "front", 1), "double", 0),
        (((), "front", 0), "double", 0),
        ((), "double", 0),
    ]
    assert [call.chain for call in substitution.calls] == [("twice", "front")] * 2 + [("front",), ()]
    assert substitution.answered == tuple(call.key for call in substitution.calls)
    with Substitution(repo, {"double": fixed(ASK)}) as again:
        repo.infer("twice", X)
    assert [call.key for call in again.calls] == [call.key for call in substitution.calls[:2]]


def test_keys_of_gathered_calls_are_fixed_when_they_are_sent(repo: Repository) -> None:
    repo.define("gather", GATHER, FLOATS)
    root = ((), "gather", 0)
    keys = [(root, "double", 0), (root, "double", 1), (root, "half", 0), (root, "double", 2)]
    order = [keys[3], keys[1], keys[2], keys[0]]

    def answer(call: Call, wait: Waiter) -> Iterator[Any]:
        before = order[: order.index(call.key)]
        assert wait.after(*before)
        yield response(call.inputs["X"].as_numpy()[0])

    for _ in range(3):
        names = {"double": By(answer), "half": By(answer)}
        with Substitution(repo, names, concurrent=True) as substitution:
            assert values(repo.infer("gather", X)) == [1, 2, 3, 4]
        assert list(substitution.answered) == order
        sent = {call.key: float(call.inputs["X"].as_numpy()[0]) for call in substitution.calls}
        assert sent == dict(zip(keys, [1, 2, 3, 4], strict=True))


def test_threads_of_a_model_have_keys_of_their_own(repo: Repository) -> None:
    source = f"""{HEAD}
    def execute(self, requests):
        import threading
        ask("double", 1).exec()
        thread = threading.Thread(target=lambda: ask("double", 2).exec())
        thread.start()
        thread.join()
        return [response(value(ask("double", 3).exec())) for r in requests]
"""
    repo.define("front", source, FLOATS)
    with Substitution(repo, {"double": fixed(ASK)}) as substitution:
        repo.infer("front", X)
    front = ((), "front", 0)
    assert {call.key: call.inputs["X"].as_numpy()[0] for call in substitution.calls} == {
        (front, "double", 0): 1,
        (((), "front", "thread"), "double", 0): 2,
        (front, "double", 1): 3,
    }


def test_steps_of_ensembles(repo: Repository) -> None:
    repo.define("steps", "", """
platform: "ensemble" max_batch_size: 0
input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } output { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }
ensemble_scheduling {
  step { model_name: "front" model_version: -1
         input_map { key: "X" value: "X" } output_map { key: "Y" value: "M" } }
  step { model_name: "double" model_version: -1
         input_map { key: "X" value: "M" } output_map { key: "Y" value: "Y" } }
}""")  # fmt: skip
    with Substitution(repo, {"double": fixed(ASK)}) as substitution:
        assert values(repo.infer("steps", X)) == [12]
    steps = ((), "steps", 0)
    assert [call.key for call in substitution.calls] == [((steps, "front", 0), "double", 0), (steps, "double", 0)]


@pytest.mark.parametrize("concurrent", [False, True])
def test_answers_of_every_kind(repo: Repository, concurrent: bool) -> None:
    def fails(call: Call, wait: Waiter) -> Iterator[Any]:
        raise KeyError("gone")
        yield

    answers = [
        (fixed(response(5)), [5.0]), (fixed(MADE_UP), [0.0]), (fixed(ASK), [6.0]),
        (fixed(pb_utils.TritonError("no")), "no"), (By(fails), "KeyError"), (fixed(), "got 0 answers, expected one"),
        (fixed(response(5), response(6)), "got 2 answers, expected one"),
        (fixed(3), "got int, expected an InferenceResponse"),
    ]  # fmt: skip
    for given, expected in answers:
        with Substitution(repo, {"double": given}, concurrent=concurrent):
            got = repo.infer("front", X)
        if isinstance(expected, str):
            assert expected in message(got)
        else:
            assert (values(got), bool(got.stubs)) == (expected, expected != [6.0])
    assert values(repo.infer("front", X)) == [6]


@pytest.mark.parametrize("concurrent", [False, True])
def test_streams(repo: Repository, concurrent: bool) -> None:
    repo.define("words", WORDS, DECOUPLED)

    async def later(call: Call, wait: Waiter) -> AsyncIterator[Any]:
        for number in range(2):
            await asyncio.sleep(0)
            yield response(number)

    real = [1.0, 2.0]
    for given, expected in [
        (fixed(response(5), Last(response(6))), [5.0, 6.0]), (fixed(), []), (fixed(MADE_UP, MADE_UP), [0.0, 0.0]),
        (fixed(ASK), real), (By(lambda call, wait: wait.ask()), real), (By(later), [0.0, 1.0]),
    ]:  # fmt: skip
        with Substitution(repo, {"words": given}, concurrent=concurrent):
            got = list(repo.stream("words", X))
        assert [values(each)[0] for each in got if "Y" in each.as_numpy()] == expected
    with Substitution(repo, {"words": fixed(response(1), pb_utils.TritonError("late"))}, concurrent=concurrent):
        first, second, *_ = repo.stream("words", X)
    assert (values(first), "late" in message(second)) == ([1], True)


@pytest.mark.parametrize("concurrent", [False, True])
def test_the_real_model_calls_with_the_keys_that_it_has_alone(repo: Repository, concurrent: bool) -> None:
    repo.define("twice", TWICE, FLOATS)
    names = {"front": fixed(ASK), "double": fixed(ASK)}
    with Substitution(repo, names, concurrent=concurrent) as both:
        assert values(repo.infer("twice", X)) == [6, 6]
    with Substitution(repo, {"double": fixed(ASK)}) as alone:
        repo.infer("twice", X)
    inner = [call for call in both.calls if call.model == "double"]
    assert [call.key for call in inner] == [call.key for call in alone.calls]
    assert [call.chain for call in inner] == [call.chain for call in alone.calls]


@pytest.mark.parametrize("concurrent", [False, True])
def test_leaving_ends_waits_and_answers_late_calls_with_an_error(repo: Repository, concurrent: bool) -> None:
    begun = threading.Event()
    with Substitution(repo, {"double": until_left(begun)}, concurrent=concurrent):
        late: Any = host_of(repo).find("double")
        asked = Caller(repo.infer, "double", X)
        assert begun.wait(LIMIT)
        if not concurrent:
            second = Caller(repo.infer, "double", X)
            until(lambda: late.scheduler.pending == 1)
    assert values(asked.result()) == [1]
    if not concurrent:
        assert "the substitution of 'double' is over" in message(second.result())
        until(lambda: late.closed.is_set())
    assert values(repo.infer("front", X)) == [6]


@pytest.mark.parametrize("concurrent", [False, True])
def test_ctrl_c_ends_a_wait(repo: Repository, concurrent: bool) -> None:
    answer = By(lambda call, wait: iter([wait.sleep(3600)]))
    with Substitution(repo, {"double": answer}, concurrent=concurrent) as calls, ctrl_c_once(lambda: calls.calls):
        repo.infer("front", X)
    assert values(repo.infer("front", X)) == [6]


def test_the_response_cache_keeps_no_answer_of_a_substitution(repo: Repository) -> None:
    repo.define("front", FRONT, FLOATS + " response_cache { enable: true }")
    repo.define("double", DOUBLE, FLOATS + " response_cache { enable: true }")
    assert values(repo.infer("front", X)) == [6]
    answers = iter([response(1), response(2)])
    with Substitution(repo, {"double": By(lambda call, wait: iter([next(answers)]))}):
        assert (values(repo.infer("front", X)), values(repo.infer("double", X))) == ([1], [2])
    assert (values(repo.infer("front", X)), values(repo.infer("double", X))) == ([6], [2])


def test_models_that_are_not_ready(repo: Repository) -> None:
    with Substitution(repo, {"double": None, "half": fixed(response(1))}) as substitution:
        assert not repo.ready("double")
        assert "'double' has no available versions" in message(repo.infer("front", X))
        assert values(repo.infer("half", X)) == [1]
        substitution.unload("half")
        assert not repo.ready("half")
        repo.define("half", DOUBLE, FLOATS)
        assert not repo.ready("half")
    assert (values(repo.infer("front", X)), values(repo.infer("half", X))) == ([6], [2])
    with (
        pytest.raises(bls.BLSError, match="no such model"),
        Substitution(repo, {"double": fixed(response(1)), "nowhere": fixed(MADE_UP)}),  # together or not at all
    ):
        pass
    assert (values(repo.infer("double", X)), bool(observer.active)) == ([2], False)
    with Substitution(repo, {"nowhere": None}):
        assert "is not found" in message(repo.infer("nowhere", X))


def test_nested_substitutions_end_in_any_order(repo: Repository) -> None:
    outer, inner = (Substitution(repo, {"double": fixed(response(n))}) for n in (1, 2))
    with ExitStack() as stack:
        stack.callback(inner.__enter__().__exit__, None, None, None)
        outer.__enter__()
        assert values(repo.infer("double", X)) == [1]
    assert values(repo.infer("double", X)) == [1]
    outer.__exit__(None, None, None)
    assert values(repo.infer("double", X)) == [2]
    with pytest.raises(bls.BLSError, match="entered before"):
        outer.__enter__()


def test_a_wait_for_the_lock_that_ctrl_c_ends_leaves_nothing_substituted(repo: Repository) -> None:
    """The own versions serve again as soon as whoever changes the model is done."""
    lock = repo._service.lock_of("double")
    held, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            leave.wait(LIMIT)

    substitution = Substitution(repo, {"double": fixed(response(1))})
    substitution.__enter__()
    holder = Caller(hold)
    assert held.wait(LIMIT)
    with ctrl_c_once(lambda: lock._waiting):
        substitution.__exit__(None, None, None)
    leave.set()
    holder.result()
    until(lambda: observer.active is None)
    assert values(repo.infer("double", X)) == [2]
