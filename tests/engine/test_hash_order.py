"""Orders that a program in C++ (libstdc++'s `std::unordered_map<std::string, int>`) or a server of 24.10 printed."""

import json

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.engine.core.hash_order import hash_order


def test_names_are_in_the_order_of_the_hash_table() -> None:
    assert hash_order(["INPUT0", "INPUT1"]) == ["INPUT1", "INPUT0"]
    names = ["INPUT0", "INPUT1", "INPUT2", "x", "image", "mask"]  # x and INPUT0 share a bucket
    assert hash_order(names) == ["mask", "image", "INPUT2", "INPUT1", "x", "INPUT0"]
    numbered = [f"INPUT{number}" for number in range(16)]  # the table grows once
    assert [int(name[5:]) for name in hash_order(numbered)] == [15, 14, 13, 0, 1, 7, 2, 5, 9, 3, 4, 6, 10, 11, 8, 12]


NAMES = ["INPUT0", "INPUT1", "INPUT2", "IMAGE", "BOXES", "a", "mask"]
OUTPUTS = ["OUT0", "OUT1", "SCORES", "LABELS"]
ORDER = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([self.seen(request, name) for name in %r]) for request in requests]

    def seen(self, request, name):
        return pb_utils.Tensor(name, np.array([json.dumps([t.name() for t in request.inputs()])], np.object_))
"""
CONTROLS = """max_batch_size: 2
sequence_batching { oldest { max_candidate_sequences: 2 }
  control_input [ { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] } ] },
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY fp32_false_true: [0, 1] } ] },
    { name: "END" control [ { kind: CONTROL_SEQUENCE_END fp32_false_true: [0, 1] } ] },
    { name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ]
  state [ { input_name: "STATE_IN" output_name: "STATE_OUT" data_type: TYPE_FP32 dims: [1]
    initial_state: { data_type: TYPE_FP32 dims: [1] zero_data: true name: "zeros" } } ] }
"""


def tensors(kind: str, names: list[str], datatype: str) -> str:
    return "".join(f'{kind} [{{ name: "{name}" data_type: {datatype} dims: [1] }}]\n' for name in names)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (NAMES, ["INPUT0", "INPUT1", "a", "INPUT2", "IMAGE", "BOXES", "mask"]),
        (NAMES[::-1], ["mask", "BOXES", "a", "INPUT1", "IMAGE", "INPUT2", "INPUT0"]),
    ],
)
def test_inputs_of_a_model_are_ordered_as_a_server_orders_them(sent: list[str], expected: list[str]) -> None:
    with bls.ModelRepository() as repo:
        config = tensors("input", NAMES, "TYPE_FP32") + tensors("output", ["OUT"], "TYPE_STRING")
        repo.define("order", ORDER % (["OUT"],), config)
        answer = repo.infer("order", {name: np.ones(1, np.float32) for name in sent})
    assert json.loads(answer["OUT"].as_numpy()[0]) == expected


def test_controls_and_states_are_ordered_as_a_server_orders_them() -> None:
    with bls.ModelRepository() as repo:
        source = (ORDER % (["OUT"],)).replace("np.array([json", "np.array([[json").replace("])], np.o", "])]], np.o")
        config = tensors("input", ["INPUT0", "INPUT1"], "TYPE_FP32") + tensors("output", ["OUT"], "TYPE_STRING")
        repo.define("order", source, config + CONTROLS)
        inputs = {name: np.ones((1, 1), np.float32) for name in ("INPUT0", "INPUT1")}
        answer = repo.infer("order", inputs, correlation_id=5, flags=1)
    assert json.loads(answer["OUT"].as_numpy()[0, 0]) == [
        "STATE_IN", "READY", "CORRID", "END", "START", "INPUT0", "INPUT1"
    ]  # fmt: skip


def test_outputs_of_an_ensemble_are_ordered_as_a_server_orders_them() -> None:
    step = "".join(f'output_map {{ key: "{name}" value: "{name}" }} ' for name in OUTPUTS)
    step = f'step [ {{ model_name: "order" model_version: -1 input_map {{ key: "IN" value: "IN" }} {step} }} ]'
    ends = tensors("input", ["IN"], "TYPE_FP32") + tensors("output", OUTPUTS, "TYPE_STRING")
    with bls.ModelRepository() as repo:
        repo.define("order", ORDER % (OUTPUTS,), ends)
        repo.define("all", "", f'platform: "ensemble"\n{ends}ensemble_scheduling {{ {step} }}')
        answer = repo.infer("all", {"IN": np.ones(1, np.float32)})
    assert [tensor.name() for tensor in answer.output_tensors()] == ["SCORES", "OUT1", "LABELS", "OUT0"]
