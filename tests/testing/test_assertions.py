"""`RepositoryUnderTest`: what it loads, what it knows of requests, and its assertions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.extending import host_of
from bls_notebook.testing import FakeClock, RepositoryUnderTest
from tests.engine.harness import Caller, until
from tests.testing.conftest import CONFIG, DOUBLE
from tests.waiting import LIMIT

X = {"X": np.arange(3, dtype=np.float32)}


@pytest.fixture
def repo(models: Path) -> Iterator[RepositoryUnderTest]:
    with RepositoryUnderTest(models) as repository:
        yield repository


def test_calls_with_their_tensors(repo: RepositoryUnderTest) -> None:
    repo.infer("front", X)
    repo.infer("front", {"X": np.array([np.nan], np.float32)}, parameters={"who": "me"})
    front, double, *_ = repo.calls()
    assert (front.model, front.caller, double.model, double.caller) == ("front", "", "double", "front")
    assert repo.assert_called("front", 1, parameters={"who": "me"}, caller="")[0].inputs["X"].shape == (1,)
    repo.assert_called("double", 1, inputs={"X": [np.nan]})
    repo.assert_called("double", 1, inputs={"X": [0.001, 1, 2]}, atol=0.01)
    repo.assert_called("double", 2, caller="front")
    repo.assert_called_in_order("front", "double", "front", "double")
    repo.assert_called_in_order("double", "double")
    repo.assert_not_overlapped("front", "double")
    repo.assert_that("called double 2")
    for told, claim in (
        (
            "double: 2 matching requests, expected 1 request.*includes loads of callees: double ",
            lambda: repo.assert_called("double", 1),
        ),
        ("double: 0 matching requests.*from the test", lambda: repo.assert_called("double", caller="")),
        ("with parameters {'who': 'you'}", lambda: repo.assert_called("front", parameters={"who": "you"})),
        ("with the expected inputs X and Z", lambda: repo.assert_called("front", inputs={"X": [1], "Z": [1]})),
        ("double: 2 requests, from front; expected none", lambda: repo.assert_not_called("double")),
        ("called in the order: front front; expected front", lambda: repo.assert_called_in_order("front")),
        ("double: at most 1 request in a batch, expected 2", lambda: repo.assert_batched("double")),
        ("overlapped 2", lambda: repo.assert_overlapped(2)),
        ("called double 3", lambda: repo.assert_that("called double 3")),
    ):
        with pytest.raises(AssertionError, match=f"(?s){told}"):
            claim()
    for claim in (repo.assert_called, repo.assert_not_called, repo.assert_not_overlapped, repo.calls):
        with pytest.raises(bls.BLSError, match="model 'dubble' is not in the repository"):
            claim("dubble")
    repo.forget()
    assert repo.calls() == ()
    repo.assert_not_called("double")


def test_numbers_that_are_none_of_the_data_type(repo: RepositoryUnderTest) -> None:
    def answer(datatype: str, array: Any) -> bls.Response:
        config = f'output {{ name: "Y" data_type: TYPE_{datatype} dims: [ -1 ] }} input {{ name: "X" '
        with repo.stub(datatype, {"Y": array}, config=f"{config}data_type: TYPE_BF16 dims: [ -1 ] }}"):
            return repo.infer(datatype, {"X": bls.pb_utils.Tensor._of("X", np.array([0x3FC0], "u2"), "BF16")})

    pixels = answer("UINT8", np.array([44, 0], np.uint8))
    repo.assert_called("UINT8", inputs={"X": np.array([1.5], np.float32)})
    repo.assert_answer(pixels, {"Y": [44, 0]})
    repo.assert_answer(pixels, {"Y": [45, 1]}, atol=1)
    repo.assert_answer(pixels, {"Y": np.array([45, 1], np.uint8)}, atol=1)
    for wrong in ([300, 0], [44.7, 0], [44, 256], ["44", "0"]):
        with pytest.raises(AssertionError, match=r"is no uint8; got \[44, 0\]"):
            repo.assert_answer(pixels, {"Y": wrong})
    repo.assert_answer(answer("FP16", np.array([0.1], np.float16)), {"Y": [0.1]})


def test_side_by_side_and_in_batches(repo: RepositoryUnderTest) -> None:
    clock = FakeClock()
    batching = f"max_batch_size: 4 dynamic_batching {{ }} {CONFIG}"
    rows = {"X": np.ones((1, 1), np.float32)}
    with repo.stub("slow", delay=5, clock=clock, config=batching):
        asked = [Caller(repo.infer, "slow", rows)]
        clock.wait_for(1)
        asked += [Caller(repo.infer, "slow", rows) for _ in range(2)]
        until(lambda: host_of(repo).ready("slow").scheduler.pending == 2)
        clock.advance(5)
        until(lambda: len(repo.calls("slow")) == 3)
        clock.wait_for(1)
        clock.advance(5)
        assert all(each.result().error is None for each in asked)
    repo.assert_batched("slow", 2)
    with pytest.raises(AssertionError, match="expected one after the other"):
        repo.assert_not_overlapped("slow")
    repo.forget()
    together = threading.Barrier(2)
    with repo.stub("pair", lambda r: together.wait(LIMIT) and None, config=f"{CONFIG} instance_group {{ count: 2 }}"):
        for each in [Caller(repo.infer, "pair", X) for _ in range(2)]:
            each.result()
    repo.assert_overlapped(2, "pair")


@pytest.mark.parametrize(
    ("claim", "use"),
    [
        ("nothing_left", "assert_nothing_left"), ("peak < 2 MB", "assert_peak"), ("output Y == 3", "assert_answer"),
        ("errors == 0", "assert_no_errors"), ("device == cpu", "bls.judge(response"), ("speedup > 2", "bls.compare"),
        ("value len(x) == 3", "assert EXPRESSION == VALUE"),
    ],
)  # fmt: skip
def test_a_claim_about_something_else_names_the_assertion(repo: RepositoryUnderTest, claim: str, use: str) -> None:
    with pytest.raises(bls.BLSError, match=use.replace("(", r"\(")):
        repo.assert_that(claim)


def test_ensembles(models: Path, repo: RepositoryUnderTest) -> None:
    (models / "both" / "1").mkdir(parents=True)
    maps = 'input_map {{ key: "X" value: "{}" }} output_map {{ key: "Y" value: "{}" }}'
    steps = ", ".join(
        f'{{ model_name: "{name}" model_version: -1 {maps.format(*way)} }}'
        for name, way in (("double", "Xt"), ("front", "tY"))
    )
    (models / "both" / "config.pbtxt").write_text(
        f'platform: "ensemble" {CONFIG} ensemble_scheduling {{ step [ {steps} ] }}'
    )
    repo.infer("both", X)
    Caller(asyncio.run, repo.infer_async("both", X)).result()
    repo.assert_called("both", 2, caller="", inputs=X)
    repo.assert_called_in_order(*("both", "double", "front", "double") * 2)
    with pytest.raises(AssertionError, match="both: 2 requests, from the test; expected none"):
        repo.assert_not_called("both")
    repo.forget()
    for loaded in (True, False):  # an ensemble takes any number of requests at a time, and so do its stubs
        if not loaded:
            repo.unload("both")
        together = threading.Barrier(3)
        with repo.stub("both", lambda r, b=together: b.wait(LIMIT) and None):
            for each in [Caller(repo.infer, "both", X) for _ in range(3)]:
                each.result()
    repo.assert_called("both", 6)


def test_errors_and_warnings(repo: RepositoryUnderTest) -> None:
    repo.infer("front", X)
    repo.assert_no_errors()
    repo.assert_no_warnings()
    repo.infer("front", {"X": np.zeros(9, np.float32)})
    with pytest.raises(AssertionError, match=r"(?s)2 requests failed.*double: .*too long.*through front"):
        repo.assert_no_errors()
    with repo.stub("double", lambda request: {"Y": np.zeros(1)}):
        repo.infer("front", X)
    with pytest.raises(AssertionError, match="FP64, the configuration says FP32"):
        repo.assert_no_warnings()
    repo.forget()
    repo.assert_no_errors()
    repo.assert_no_warnings()


def test_answers(repo: RepositoryUnderTest) -> None:
    good, bad = repo.infer("front", X), repo.infer("front", {"X": np.zeros(9, np.float32)})
    repo.assert_answer(good, {"Y": [0, 2, 4]})
    repo.assert_answer(good, {"Y": np.array([0, 2, 4.1], np.float32)}, rtol=0.1)
    for response, expected, told in (
        (good, {"Y": [0, 2, 5]}, r"front: Y differ(?s:.*)\[2\] 5.0 and 4.0"),
        (good, {"Y": [0, 2]}, r"shapes differ: \[2\] and \[3\]"),
        (good, {"Y": np.array([0, 2, 4])}, "data types differ: int64 and float32"),
        (good, {"Z": [0]}, "missing; the tensors are: Y"),
        (bad, {"Y": [0]}, "front answered with an error(?s:.*)too long"),
    ):
        with pytest.raises(AssertionError, match=told):
            repo.assert_answer(response, expected)
    texts = CONFIG.replace("FP32", "STRING")
    with repo.stub("words", {"Y": ["a", "ä"]}, config=texts):
        answer = repo.infer("words", {"X": ["x"]})
        repo.assert_answer(answer, {"Y": ["a", "ä"]})
        repo.assert_answer(answer, {"Y": [b"a", "ä".encode()]})
        with pytest.raises(AssertionError, match="Y differ"):
            repo.assert_answer(answer, {"Y": ["a", "b"]})


@pytest.mark.slow
def test_memory(repo: RepositoryUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.infer("front", X)
    with repo.assert_nothing_left(), repo.stub("double", {"Y": [1]}):
        repo.infer("front", X)
    with repo.assert_peak("1 MB"):
        repo.infer("front", X)
    with pytest.raises(AssertionError, match="peak <= 10 B"), repo.assert_peak(10):
        repo.infer("front", X)
    monkeypatch.setattr("bls_notebook.testing.assertions._PATIENCE", 0.01)  # `kept` is never released
    with pytest.raises(AssertionError, match="held by kept"), repo.assert_nothing_left():
        kept = repo.infer("front", X)
    with pytest.raises(KeyError), repo.assert_peak(10):  # and not what is asserted of memory
        raise KeyError(kept)
    with pytest.raises(bls.BLSError, match="expected bytes, or a size"):
        repo.assert_peak("5 ms")


def test_tensors_that_do_not_fit_are_not_kept_and_told(
    repo: RepositoryUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bls_notebook.testing.recorded_calls.MOST_BYTES", 20)
    repo.forget()
    repo.infer("double", X)
    repo.infer("double", X)
    first, second = repo.calls("double")
    assert set(first.inputs) == {"X"}
    assert not second.inputs
    with pytest.raises(AssertionError, match="tensors of 1 request were not kept"):
        repo.assert_called("double", 2, inputs=X)


def test_circles_and_broken_models_are_told_by_the_load(models: Path) -> None:
    for name in ("double", "front"):
        file = models / name / "1" / "model.py"
        other = {"double": "front", "front": "double"}[name]
        file.write_text(file.read_text() + f"\n# pb_utils.InferenceRequest(model_name={other!r})\n")
    (models / "double" / "1" / "helper.py").write_text(
        'def times(x): return x\ndef never(pb): return pb.InferenceRequest(model_name="front")\n'
    )
    (models / "broken" / "1").mkdir(parents=True)
    (models / "broken" / "1" / "model.py").write_text("1 / 0")
    with RepositoryUnderTest(models) as repo:
        assert repo.infer("front", X).error is None
        with pytest.raises(bls.ModelLoadError, match="division by zero"):
            repo.infer("broken", X)
        assert "nowhere" in str(repo.infer("nowhere", X).error)
        repo.define("asks", ASKS, CONFIG)
        for _ in range(2):
            error = repo.infer("asks", X).error
            assert error is not None  # in Triton's words, and why
            assert "has no available versions Why: model 'broken' version 1 could" in error.message()
            assert "division by zero" in error.message()


ASKS = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answer = pb_utils.InferenceRequest(
            model_name="broken", requested_output_names=["Y"], inputs=requests[0].inputs()
        ).exec()
        return [pb_utils.InferenceResponse([], answer.error())]
"""
UNLOADS = ASKS.replace("        answer", "        pb_utils.unload_model('double')\n        answer").replace(
    "broken", "double"
)


def test_unloaded_models_stay_unloaded(repo: RepositoryUnderTest) -> None:
    repo.infer("double", X)
    repo.unload("double")
    assert "Request for unknown model" in str(repo.infer("front", X).error)
    assert "'double'" in str(repo.infer("double", X).error)
    repo.load("double")
    repo.assert_answer(repo.infer("front", X), {"Y": [0, 2, 4]})
    repo.define("unloads", UNLOADS, CONFIG)
    assert "Request for unknown model" in str(repo.infer("unloads", X).error)
    with repo.stub("double", {"Y": [1]}):
        repo.assert_answer(repo.infer("front", X), {"Y": [1]})
        assert "Request for unknown model" in str(repo.infer("unloads", X).error)
    repo.reset()
    repo.forget()
    repo.assert_answer(repo.infer("front", X), {"Y": [0, 2, 4]})


def test_files_by_their_paths(tmp_path: Path) -> None:
    folder = tmp_path / "lonely"
    folder.mkdir()
    (folder / "model.py").write_text(DOUBLE)
    (folder / "helper.py").write_text("def times(x): return x * 3")
    with RepositoryUnderTest() as repo:
        with pytest.raises(bls.BLSError, match="is no file"):
            repo.load_file(folder / "nothing.py")
        repo.load_file(folder / "model.py", CONFIG)
        repo.assert_answer(repo.infer("lonely", X), {"Y": [0, 3, 6]})
        repo.load_file(folder / "model.py", CONFIG, name="again")
        assert {row.name for row in repo.index()} == {"lonely", "again"}
    (folder / "1").mkdir()
    for file in folder.glob("*.py"):
        file.rename(folder / "1" / file.name)
    with RepositoryUnderTest(tmp_path) as repo:  # one of its own
        assert repo.load_file(folder / "1" / "model.py", CONFIG.replace("-1", "3")).inputs[0].dims == (3,)
        repo.assert_answer(repo.infer("lonely", X), {"Y": [0, 3, 6]})


def test_assertions_hold_after_the_end(models: Path) -> None:
    with RepositoryUnderTest(models) as repo:
        repo.infer("front", X)
    repo.assert_called("double", 1, inputs=X)
    repo.assert_that("requests == 2")
    assert "→ double" in repo.failure_text()


def test_a_clock_that_is_not_waited_for() -> None:
    clock = FakeClock()
    with pytest.raises(AssertionError, match="0 requests wait for the clock after 0 s, expected 2"):
        clock.wait_for(2, timeout=0)
    ended: list[Any] = []
    clock.wait(5, lambda: ended.append(1) or len(ended) > 1)
