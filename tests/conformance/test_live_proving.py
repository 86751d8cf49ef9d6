"""Certificates: of models that answer alike, and of one that does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.observe.records.shipping.certificate import Certificate
from bls_notebook.triton.proving.prove import Prover, proving
from bls_notebook.triton.tritonserver import ServerEnvironment
from tests.conformance.conftest import ROOT

pytestmark = pytest.mark.triton

# Scales by what NumPy it finds: the server has version 1.
SCALED = """\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        old = int(np.__version__.split(".")[0]) < 2
        responses = []
        for request in requests:
            values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            scaled = np.where((values > 5) & old, np.nextafter(values, np.float32(1e9)), values)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", scaled)]))
        return responses
"""
CONFIG = """\
backend: "python"
input { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }
"""
NAMES = ("add_sub", "square_int32", "scaled")


@pytest.fixture(scope="module")
def prover(environment: ServerEnvironment) -> Iterator[Prover]:
    with bls.ModelRepository(ROOT / "model_repository") as repository:
        for name in NAMES[:2]:
            repository.load(name)
        repository.define("scaled", SCALED, CONFIG)
        with proving(repository, NAMES, environment) as prover:
            yield prover


@pytest.mark.parametrize("model", NAMES[:2])
def test_models_that_answer_alike(prover: Prover, model: str) -> None:
    found = prover.prove(model, generate=30)
    assert found.equal, render(found).text
    assert (found.given, found.generated, found.unequal) == (0, 30, ())
    assert {path.partition("/")[0] for path, _ in found.files} == {model}
    assert Certificate.from_dict(found.to_dict()) == found


def test_the_smallest_request_that_differs(prover: Prover) -> None:
    found = prover.prove("scaled", {"IN": [1.0, 2.0]}, generate=200)
    assert not found.equal
    (unequal,) = found.unequal
    assert unequal.shrunk
    assert [tensor.shape for tensor in unequal.steps[0]] == [(1,)]
    assert unequal.tensors[0].ulps == 1
    assert "the smallest request that shows it" in render(found).text


def test_what_floats_may_differ_by(prover: Prover) -> None:
    assert not prover.prove("scaled", {"IN": [1.0, 6.0]}).equal
    assert prover.prove("scaled", {"IN": [1.0, 6.0]}, ulps=1).equal
    assert prover.prove("scaled", {"IN": [1.0, 6.0]}, tolerance=1e-5).equal


def test_without_a_request_nothing_is_proven(prover: Prover) -> None:
    with pytest.raises(bls.BLSError, match="no request for model 'add_sub': give inputs"):
        prover.prove("add_sub")


def test_nothing_is_left_in_the_folder(
    prover: Prover, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prover.prove("add_sub", generate=1)
    assert not list(tmp_path.iterdir())
