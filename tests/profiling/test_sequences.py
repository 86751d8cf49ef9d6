"""Tools that send requests themselves, with models that batch sequences: whole sequences, in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bls_notebook as bls

SUMS = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        start, end = (request.flags() & flag for flag in (1, 2))
        key = request.correlation_id()
        if start or key not in self.sums:  # a slot without a request of its sequence has one of no sequence
            self.sums[key] = 0
        self.sums[key] += int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().ravel()[0])
        total = self.sums.pop(key) if end else self.sums[key]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[total]], np.int32))])
"""
CALLER = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        array = request.inputs()[0].as_numpy()
        for flags in (1, 0, 2):
            response = pb_utils.InferenceRequest(
                model_name="sums", requested_output_names=["OUT"], correlation_id=7, flags=flags,
                inputs=[pb_utils.Tensor("IN", array)],
            ).exec()
            if response.has_error():
                raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.InferenceResponse(response.output_tensors())
"""
TENSORS = """
input [{ name: "IN", data_type: TYPE_INT32, dims: [1] }]
output [{ name: "OUT", data_type: TYPE_INT32, dims: [1] }]
"""
CONTROLS = """
max_batch_size: 4
sequence_batching {{
  control_input [ {{ name: "START" control [ {{ kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] }} ] }},
    {{ name: "CORRID" control [ {{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_{} }} ] }} ]
}}
"""
ENSEMBLE = """
platform: "ensemble"
max_batch_size: 4
ensemble_scheduling { step [ { model_name: "sums" model_version: -1
  input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } ] }
"""


def one(value: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"IN": np.array([[value]], np.int32)}


@pytest.mark.parametrize("ids", ["UINT64", "INT32", "STRING"])
def test_each_request_of_a_comparison_is_a_sequence(repo: bls.ModelRepository, ids: str) -> None:
    repo.define("sums", SUMS, TENSORS + CONTROLS.format(ids))
    found = bls.compare("sums", one(3), n=3, repeat=1, repo=repo)
    assert found.verdict.cause != "failed"
    for session in (found.sequential, found.gathered):
        assert [span.flags for span in session.spans] == [3, 3, 3]
        assert len({span.correlation_id for span in session.spans}) == 3


def test_different_inputs_of_a_comparison_are_the_steps_of_sequences(repo: bls.ModelRepository) -> None:
    repo.define("sums", SUMS, TENSORS + CONTROLS.format("UINT64"))
    repo.define("steps", "", TENSORS + ENSEMBLE)
    for model in ("sums", "steps"):
        found = bls.compare(model, [one(1), one(2), one(3)], n=5, repeat=1, repo=repo)
        for session in (found.sequential, found.gathered):
            spans = [span for span in session.spans if not span.parent]
            assert [span.flags for span in spans] == [1, 0, 2, 1, 2]
            first, *_, last = (span.correlation_id for span in spans)
            assert [span.correlation_id for span in spans] == [first] * 3 + [last] * 2
            assert {span.state for span in session.spans} == {"ok"}


def test_overlap_and_tune_send_whole_sequences(repo: bls.ModelRepository) -> None:
    repo.define("sums", SUMS, TENSORS + CONTROLS.format("UINT64"))
    assert not bls.overlap("sums", one(3), repeat=1, repo=repo).problem
    assert not bls.tune("sums", one(3), n=2, repeat=1, verify=False, repo=repo).problem


def test_a_drill_answers_each_step_of_a_sequence_from_its_recording(repo: bls.ModelRepository) -> None:
    repo.define("sums", SUMS, TENSORS + CONTROLS.format("UINT64"))
    repo.define("caller", CALLER, "max_batch_size: 4\n" + TENSORS)
    (case,) = bls.drill("caller", one(3), faults=["slow"], repo=repo).cases
    assert case.verdict == "unharmed"
