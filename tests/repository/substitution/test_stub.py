"""`ModelRepository.stub`: who answers, what is seen of it, and that everything is as before at its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook import pb_utils
from bls_notebook.extending import host_of
from tests.engine.harness import Caller, ctrl_c_once, message, until
from tests.repository.models import FLOATS, values
from tests.waiting import LIMIT

Repository = bls.ModelRepository
HEAD = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        out = []
"""
DOUBLE = f"""{HEAD}
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy() * 2)]) for r in requests]
"""
CALLER = f"""{HEAD}
        for r in requests:
            got = pb_utils.InferenceRequest(
                model_name="double", requested_output_names=["Y"], inputs=r.inputs(), parameters={{"who": "me"}}
            ).exec()
            out.append(pb_utils.InferenceResponse(got.output_tensors(), got.error()))
        return out
"""
ASYNC_CALLER = (
    CALLER.replace("def execute", "async def execute")
    .replace("got = pb", "got = await pb")
    .replace(".exec()", ".async_exec()")
)
STREAM_CALLER = f"""{HEAD}
        for r in requests:
            found = []
            for got in pb_utils.InferenceRequest(
                model_name="words", requested_output_names=["Y"], inputs=r.inputs()
            ).exec(decoupled=True):
                found += [float(t.as_numpy()[0]) for t in got.output_tensors()]
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array(found, np.float32))]))
        return out
"""
X = {"X": np.ones(3, np.float32)}
STEPS = """
platform: "ensemble" max_batch_size: 0
input { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } output { name: "B" data_type: TYPE_FP32 dims: [ -1 ] }
ensemble_scheduling { step {
  model_name: "double" model_version: -1 input_map { key: "X" value: "A" } output_map { key: "Y" value: "B" }
} }
"""


@pytest.fixture
def pipe(repo: Repository) -> Repository:
    repo.define("double", DOUBLE, FLOATS)
    repo.define("front", CALLER, FLOATS)
    return repo


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"Y": [7, 8]}, [7, 8]),
        (lambda request: {"Y": request.inputs()[0].as_numpy() + 1}, [2, 2, 2]),
        (Mock(return_value={"Y": [4]}), [4]),
        (lambda request: pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.zeros(1, np.float32))]), [0]),
        ([{"Y": [1]}, {"Y": [2]}], [1]),
        (None, [0, 0, 0]),
        (type("Recording", (), {"answer_of": lambda self, model: lambda r: {"Y": [len(model)]}})(), [6]),
    ],
)
def test_answers_of_every_form(pipe: Repository, answer: object, expected: list[float]) -> None:
    own = host_of(pipe).find("double")
    with pipe.stub("double", answer) as double:
        response = pipe.infer("front", X)
        assert (values(response), response.stubs) == (expected, ("double",))
    (call,) = double.calls
    assert call.inputs["X"].tolist() == [1, 1, 1]
    assert not call.inputs["X"].flags.writeable
    assert (call.caller, call.chain, call.outputs) == ("front", ("front",), ("Y",))
    assert call.parameters == {"who": "me"}
    assert host_of(pipe).find("double") is own
    assert values(pipe.infer("front", X)) == [2, 2, 2]


async def _later(request: Any) -> Any:
    await asyncio.sleep(0)
    return {"Y": [5]}


@pytest.mark.parametrize(
    ("answer", "code", "told"),
    [
        (pb_utils.TritonError("gone", pb_utils.TritonError.UNAVAILABLE), "UNAVAILABLE", "gone"),
        ("in text", "INTERNAL", "in text"),
        (ValueError("bad"), "INTERNAL", "ValueError: bad"),
        (KeyError, "INTERNAL", "KeyError"),
        (lambda request: pb_utils.TritonError("of it"), "INTERNAL", "of it"),
        (lambda request: 1 / 0, "INTERNAL", "ZeroDivisionError"),
        (lambda request: [1], "INTERNAL", "answer: got list, expected a mapping"),
        (lambda request: {"Y": object()}, "INTERNAL", "output 'Y': got"),
        ([], "INTERNAL", "got request 1, but the list has only 0 answers"),
    ],
)
def test_errors_with_their_codes(pipe: Repository, answer: object, code: str, told: str) -> None:
    with pipe.stub("double", answer):
        response = pipe.infer("double", X)
    assert response.error is not None
    assert response.error.code().name == code
    assert told in message(response)
    assert response.stubs == ("double",) or "Failed to process" in message(response)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"answer": {"Z": [1]}}, "no output 'Z'; expected 'Y'"),
        ({"answer": 3}, "answer: got int, expected a mapping"),
        ({"answer": [3]}, "an item of the list: got int"),
        ({"delay": -1}, "delay: got -1"),
        ({"delay": "1"}, "delay: got '1'"),
        ({"config": FLOATS}, "got a config, but the model in service already has a configuration; omit config"),
    ],
)
def test_misuse_is_one_line_and_changes_nothing(pipe: Repository, arguments: Any, told: str) -> None:
    with pytest.raises(bls.BLSError, match=told), pipe.stub("double", **arguments):
        pass
    assert values(pipe.infer("front", X)) == [2, 2, 2]
    assert not pipe.model("double").stub


@pytest.mark.parametrize("source", [CALLER, ASYNC_CALLER], ids=["sync", "async"])
def test_async_functions_and_callers_and_checked_outputs(pipe: Repository, source: str) -> None:
    pipe.define("front", source, FLOATS)
    with pipe.stub("double", _later):
        assert (values(pipe.infer("front", X)), values(asyncio.run(pipe.infer_async("front", X)))) == ([5], [5])
    with pipe.stub("double", lambda request: {"Y": np.zeros((1, 2), np.float64)}):
        assert "FP64" in " ".join(pipe.infer("double", X).warnings)
    with pipe.stub("double", lambda request: {}):
        assert any("'Y'" in each for each in pipe.infer("double", X).warnings)


def test_a_stub_is_shown(pipe: Repository) -> None:
    with pipe.stub("double"), bls.profile() as session:
        pipe.infer("front", X)
        assert pipe.model("double").stub
        assert [row.name for row in pipe.index() if row.stub] == ["double"]
    assert [model.name for model in session.record.models if model.stub] == ["double"]
    assert not pipe.model("double").stub


def test_an_assertion_in_a_function_fails_the_test(pipe: Repository) -> None:
    def strict(request: Any) -> Any:
        assert request.inputs()[0].name() == "Z"

    with pytest.raises(AssertionError), pipe.stub("double", strict):
        assert message(pipe.infer("front", X))
    with pytest.raises(pytest.fail.Exception, match="no"), pipe.stub("double", lambda r: pytest.fail("no")):
        pipe.infer("front", X)
    assert values(pipe.infer("front", X)) == [2, 2, 2]


def test_models_that_are_replaced_or_unloaded_meanwhile(pipe: Repository) -> None:
    with pipe.stub("double", {"Y": [1]}) as double:
        pipe.define("double", DOUBLE.replace("* 2", "* 3"), FLOATS)
        assert values(pipe.infer("front", X)) == [1]
        pipe.set_config("double", FLOATS + " instance_group { count: 2 kind: KIND_CPU }")
        assert (values(pipe.infer("front", X)), pipe.model("double").instances) == ([1], 2)
        pipe.unload("double")
        assert "double" in message(pipe.infer("front", X))
        pipe.define("double", DOUBLE.replace("* 2", "* 4"), FLOATS)
        assert values(pipe.infer("front", X)) == [1]
    assert (values(pipe.infer("front", X)), len(double.calls)) == ([4, 4, 4], 3)


def test_models_of_files_are_not_loaded(disk: Repository) -> None:
    folder = disk.paths[0] / "double"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text("raise RuntimeError('it was run')")
    (folder / "config.pbtxt").write_text(FLOATS + 'backend: "python"')
    disk.define("front", CALLER, FLOATS)
    with disk.stub("double", {"Y": [1]}):
        assert values(disk.infer("front", X)) == [1]
        assert disk.model("double").stub
        disk.unload("double")
        assert message(disk.infer("front", X))
        disk.load("double")  # as a model may do that loads its callees itself
        assert values(disk.infer("front", X)) == [1]
    assert not disk.ready("double")
    with pytest.raises(bls.ModelLoadError, match="it was run"):
        disk.load("double")


def test_models_that_are_nowhere(repo: Repository) -> None:
    repo.define("front", CALLER, FLOATS)
    for options, told in (({}, "pass config="), ({"config": ""}, "names no outputs")):
        with pytest.raises(bls.BLSError, match=told), repo.stub("double", **options):
            pass
    with repo.stub("double", {"Y": [1]}, config=FLOATS):
        assert values(repo.infer("front", X)) == [1]
        repo.define("steps", "", STEPS)
        assert values(repo.infer("steps", {"A": X["X"]}), "B") == [1]
    assert not repo.ready("double")
    assert not repo.ready("steps")


def test_steps_of_ensembles_and_ensembles(pipe: Repository) -> None:
    pipe.define("steps", "", STEPS)
    with pipe.stub("double", {"Y": [1]}) as double:
        assert values(pipe.infer("steps", {"A": X["X"]}), "B") == [1]
    assert double.calls[0].chain == ("steps",)
    with pipe.stub("steps", {"B": [2]}):
        assert values(pipe.infer("steps", {"A": X["X"]}), "B") == [2]
    assert values(pipe.infer("steps", {"A": X["X"]}), "B") == [2, 2, 2]


WORDS = FLOATS + " model_transaction_policy { decoupled: true }"


def _numbers(request: Any) -> Iterator[Any]:
    for number in range(3):
        yield {"Y": [number]}


async def _numbers_async(request: Any) -> Any:
    for number in range(3):
        await asyncio.sleep(0)
        yield {"Y": [number]}


@pytest.mark.parametrize("answer", [_numbers, _numbers_async, lambda request: [{"Y": [i]} for i in range(3)]])
def test_streams(repo: Repository, answer: Callable[[Any], Any]) -> None:
    with repo.stub("words", answer, config=WORDS):
        repo.define("reader", STREAM_CALLER, FLOATS)
        assert values(repo.infer("reader", X)) == [0, 1, 2]
        assert [values(each)[0] for each in repo.stream("words", X)] == [0, 1, 2]
    with repo.stub("words", [{"Y": [1]}, "no", [{"Y": [1]}, "late"], None], config=WORDS):
        assert [values(each) for each in repo.stream("words", X)] == [[1]]
        assert [message(each) for each in repo.stream("words", X)] == ["no"]
        first, second = repo.stream("words", X)
        assert (values(first), "late" in message(second)) == ([1], True)
        assert len(list(repo.stream("words", X))) == 3


def test_batches(repo: Repository) -> None:
    config = "max_batch_size: 4 dynamic_batching { } " + FLOATS
    gate, begun = threading.Event(), threading.Event()

    def slow(request: Any) -> Any:
        begun.set()
        gate.wait(LIMIT)
        if request.inputs()[0].as_numpy()[0, 0] == 2:
            raise ValueError("two")
        return {"Y": request.inputs()[0].as_numpy()}

    with repo.stub("double", slow, config=config) as double:
        first = Caller(repo.infer, "double", {"X": np.zeros((1, 1), np.float32)})
        assert begun.wait(LIMIT)
        others = [Caller(repo.infer, "double", {"X": np.full((1, 1), i, np.float32)}) for i in (1, 2, 3)]
        until(lambda: host_of(repo).ready("double").scheduler.pending == 3)
        gate.set()
        found = [each.result() for each in (first, *others)]
    assert [call.batch for call in double.calls] == [1, 3, 3, 3]
    assert [each.error is None for each in found] == [True, True, False, True]
    assert "two" in message(found[2])
    with repo.stub("double", {"Y": np.array([7.0], np.float32)}, config=config):
        assert values(repo.infer("double", {"X": np.zeros((3, 2), np.float32)})) == [[7], [7], [7]]


SEQUENCES = (
    "max_batch_size: 2 sequence_batching { control_input { name: 'READY' control { "
    "kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] } } } "
    "instance_group { count: 1 kind: KIND_CPU } " + FLOATS
)


def test_sequences_are_asked_for_without_the_slots_that_wait(repo: Repository) -> None:
    with repo.stub("double", lambda r: {"Y": r.inputs()[0].as_numpy() + 1}, config=SEQUENCES) as double:
        for flags in (1, 0, 2):
            response = repo.infer("double", {"X": np.ones((1, 1), np.float32)}, correlation_id=7, flags=flags)
            assert values(response) == [[2]]
    assert [call.flags for call in double.calls] == [1, 0, 2]
    assert {call.correlation_id for call in double.calls} == {7}


class Waits:
    """A clock whose time is over when a test says so, or when nobody waits any more."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.over = threading.Event()

    def wait(self, seconds: float, ended: Callable[[], bool]) -> None:
        self.seconds.append(seconds)
        until(lambda: self.over.is_set() or ended())


@pytest.mark.parametrize("answer", [{"Y": [1]}, _later], ids=["sync", "async"])
def test_delays_end_with_the_stub(pipe: Repository, answer: object) -> None:
    clock = Waits()
    with pipe.stub("double", answer, delay=3600, clock=clock) as double:
        asked = Caller(pipe.infer, "front", X)
        until(lambda: clock.seconds)
        assert not asked.done
        clock.over.set()
        asked.result()
        clock.over.clear()
        asked = Caller(pipe.infer, "front", X)
        until(lambda: len(double.calls) == 2)
    assert (values(asked.result()), clock.seconds) == (values(asked.result()), [3600, 3600])


def test_delays_end_with_the_request_and_the_repository() -> None:
    with bls.ModelRepository() as repo:
        stub = repo.stub("double", delay=3600, config=FLOATS)
        with stub:

            async def gives_up() -> None:
                waiting = asyncio.ensure_future(repo.infer_async("double", X))
                await asyncio.to_thread(until, lambda: stub.calls)
                waiting.cancel()

            asyncio.run(gives_up())
            until(lambda: host_of(repo).ready("double").scheduler._idle)
            asked = Caller(repo.infer, "double", X)
            until(lambda: len(stub.calls) == 2)
            repo.close()
            asked.result()
    assert repo.closed


def test_ctrl_c_ends_a_delay(pipe: Repository) -> None:
    with pipe.stub("double", delay=3600) as double, ctrl_c_once(lambda: double.calls):
        pipe.infer("front", X)
    assert values(pipe.infer("front", X)) == [2, 2, 2]

    begun: list[Any] = []

    def stuck(request: Any) -> None:
        begun.append(request.request_id())
        while not threading.Event().wait(0.05):  # a signal just before an endless wait in the system does not end it
            pass

    with pipe.stub("double", stuck), ctrl_c_once(lambda: begun):
        pipe.infer("front", X)
    assert values(pipe.infer("front", X)) == [2, 2, 2]


def test_threads_stub_side_by_side(pipe: Repository) -> None:
    for name in ("a", "b", "c", "d"):
        pipe.define(name, DOUBLE, FLOATS)

    def work(name: str) -> None:
        for number in range(20):
            with pipe.stub(name, {"Y": [number]}):
                assert values(pipe.infer(name, X)) == [number]
            assert values(pipe.infer(name, X)) == [2, 2, 2]

    for each in [Caller(work, name) for name in ("a", "b", "c", "d")]:
        each.result()
