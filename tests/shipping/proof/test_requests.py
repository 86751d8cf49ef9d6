"""Generated requests of a proof, and a model's comparison with itself, without a server."""

from __future__ import annotations

import random

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.extending import Host
from bls_notebook.shipping.proof.requests import ProofCase, cases_of, generate
from bls_notebook.shipping.proof.steadiness import compared_with_itself
from bls_notebook.shipping.proof.targets import LocalTarget

pytest.importorskip("hypothesis")

NAMED = """\
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        named = [pb_utils.get_input_tensor_by_name(request, "ID").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values)]) for values in named]
"""


def test_generated_requests_reseed_no_generator(samples: bls.ModelRepository) -> None:
    def draw() -> tuple[float, float]:
        return random.random(), float(np.random.rand())

    def check(case: ProofCase) -> None:
        drawn.append(draw())

    random.seed(5)
    np.random.seed(5)
    expected = [draw() for _ in range(11)]
    random.seed(5)
    np.random.seed(5)
    drawn: list[tuple[float, float]] = []
    generate(Host(samples).ready("add_sub").spec, 10, 0, check)
    drawn.append(draw())
    assert drawn == expected[: len(drawn)]
    assert len(drawn) > 5


def test_correlation_ids_are_no_variation(samples: bls.ModelRepository) -> None:
    control = 'sequence_batching { control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID } } }'
    tensors = (
        'input { name: "IN" data_type: TYPE_FP32 dims: [1] } output { name: "OUT" data_type: TYPE_UINT64 dims: [1] }'
    )
    samples.define(
        "named", NAMED, f'backend: "python" {tensors} {control.replace("CORRID", "CORRID data_type: TYPE_UINT64")}'
    )
    spec = Host(samples).ready("named").spec
    cases = cases_of(spec, [{"IN": [1.0]}, {"IN": [2.0]}], {})
    assert compared_with_itself(LocalTarget(samples, spec), cases) == ((), False)
