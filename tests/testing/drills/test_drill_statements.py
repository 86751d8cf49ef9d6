"""Drills: statements that were false of callers with unusual habits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.testing.drills import driller
from tests.testing.drills.models import _HEAD
from tests.waiting import LIMIT

CONFIG = """
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
PARTLY = """
    def one(self, x):
        response = call("twice", x).exec()
        y = np.array([1, 2, 3], np.float32) if response.has_error() else value(response)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", y), pb_utils.Tensor("ECHO", x)])
"""
ENSEMBLE = """
platform: "ensemble"
ensemble_scheduling { step [ {
  model_name: "twice" model_version: -1
  input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" }
} ] }
"""
STALE = """
    last = None
    def one(self, x):
        response = call("twice", x).exec()
        if not response.has_error():
            self.last = value(response).copy()
        return out(self.last)
"""
CONSTANT = """
    def one(self, x):
        response = call("twice", x).exec()
        return out(np.array([1, 2, 3], np.float32) if response.has_error() else value(response))
"""
STREAM = """
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for name in ("twice", "other"):
                response = call(name, given(request)).exec()
                if not response.has_error():
                    sender.send(out(value(response)))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
BREAKER = """
    failures = 0
    def one(self, x):
        if self.failures > 1:
            return out(x)
        response = call("twice", x).exec()
        if response.has_error():
            self.failures += 1
            return pb_utils.InferenceResponse(error=response.error())
        return out(value(response))
"""
KEEPS = """
    def one(self, x):
        big = np.ones(100_000, np.float32)
        try:
            response = call("twice", x).exec()
            if response.has_error():
                raise RuntimeError(response.error().message())
            return out(value(response))
        except RuntimeError as error:
            self.kept.append(error)
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{error}"))
"""


@pytest.fixture(scope="module")
def repo() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository() as repository:
        for name in ("twice", "other"):
            repository.define(name, _HEAD + "    def one(self, x):\n        return out(x * 2 + 1)\n", config=CONFIG)
        yield repository


@pytest.fixture(autouse=True)
def no_request_is_too_slow_to_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, too, the drill repeats requests to find leaks."""
    monkeypatch.setattr(driller, "SLOW", LIMIT)


@pytest.mark.parametrize(
    ("body", "fault", "verdict", "says"),
    [
        (CONSTANT, "error-once", "silent", "the response is the same for other inputs: a constant"),
        (PARTLY, "error", "silent", "OUT is the same for other inputs: a constant"),
        (STALE, "error", "silent", "the response is that to an earlier request"),
        (STREAM, "error", "silent", "1 response instead of 2"),
        (BREAKER, "error", "spoilt", "afterwards its response differs from the one before"),
        (KEEPS, "error", "leak", "bytes behind that are no tensor, in caller.kept"),
    ],
)
def test_the_statement_is_true(repo: bls.ModelRepository, body: str, fault: str, verdict: str, says: str) -> None:
    config = CONFIG + "model_transaction_policy { decoupled: true }" * (body is STREAM)
    config += 'output [ { name: "ECHO" data_type: TYPE_FP32 dims: [ -1 ] } ]' * (body is PARTLY)
    repo.define("caller", _HEAD + body, config=config)
    found = bls.drill("caller", {"IN": np.array([1, 2, 3], np.float32)}, faults=(fault,), repo=repo)
    case = found.case("twice", fault)
    assert (case.verdict, says in case.said) == (verdict, True), case.said


def test_a_stale_response_that_happens_to_be_right_is_no_good_sign(repo: bls.ModelRepository) -> None:
    repo.define("caller", _HEAD + STALE, config=CONFIG)
    found = bls.drill("caller", {"IN": np.array([1, 2, 3], np.float32)}, faults=("error", "cancelled"), repo=repo)
    case = found.case("twice", "cancelled")
    assert (case.verdict, "other inputs get the same response" in case.said) == ("silent", True)


def test_the_threads_of_a_substituted_ensemble_are_no_leak(tmp_path: Path) -> None:
    (tmp_path / "whole" / "1").mkdir(parents=True)
    (tmp_path / "whole" / "config.pbtxt").write_text(CONFIG + ENSEMBLE)
    with bls.ModelRepository(tmp_path) as repo:
        repo.define("twice", _HEAD + "    def one(self, x):\n        return out(x * 2 + 1)\n", config=CONFIG)
        repo.load("whole")
        body = "    def one(self, x):\n        return out(value(call('whole', x).exec()) + 0)\n"
        repo.define("caller", _HEAD + body, config=CONFIG)
        found = bls.drill("caller", {"IN": np.array([1, 2, 3], np.float32)}, faults=("empty",), repo=repo)
    assert found.case("whole", "empty").verdict == "silent"
