"""A pipeline with every kind of hop, for tests of what is recorded of it."""

from __future__ import annotations

from typing import Any

import numpy as np

import bls_notebook as bls

HEAD = (
    "import json\n" + "import numpy as np\nimport triton_python_backend_utils as pb_utils\n\nclass TritonPythonModel:\n"
)


def _io(kind: str, names: str, datatype: str, dims: str = "-1") -> str:
    return "".join(f'{kind} {{ name: "{n}" data_type: TYPE_{datatype} dims: [{dims}] }}\n' for n in names)


MODELS = {
    # Writes to what it was given, and gives that on.
    "double": (
        """
    def execute(self, requests):
        out = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            x *= 2
            said = {"times": len(json.loads(request.parameters()))}
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)], parameters=said))
        return out
""",
        _io("input", "X", "FP32") + _io("output", "Y", "FP32"),
    ),
    "words": (
        """
    def execute(self, requests):
        out = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "T").as_numpy()
            y = np.array([b"<" + each + b">" for each in x.ravel()], np.object_).reshape(x.shape)
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("U", y)]))
        return out
""",
        _io("input", "T", "STRING") + _io("output", "U", "STRING"),
    ),
    "stream": (
        """
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            for each in x:
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([each]))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
        _io("input", "X", "FP32") + _io("output", "Y", "FP32") + "model_transaction_policy { decoupled: true }\n",
    ),
    "page": (
        """
    def execute(self, requests):
        out = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X")
            asked = pb_utils.InferenceRequest(
                model_name="double", inputs=[x], requested_output_names=["Y"], parameters={"a": 1})
            y = pb_utils.get_output_tensor_by_name(asked.exec(), "Y").as_numpy()
            again = pb_utils.InferenceRequest(
                model_name="stream", inputs=[pb_utils.Tensor("X", y)], requested_output_names=["Y"])
            total = sum(r.output_tensors()[0].as_numpy()[0] for r in again.exec(decoupled=True)
                        if r.output_tensors())
            if total < 0:
                raise ValueError("below zero")
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([total], np.float32))]))
        return out
""",
        _io("input", "X", "FP32") + _io("output", "Y", "FP32"),
    ),
    "last": (
        """
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        out = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            start = pb_utils.get_input_tensor_by_name(request, "START").as_numpy().ravel()[0]
            self.total = x.sum() + (0 if start else self.total)
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.full((1, 1), self.total))]))
        return out
""",
        "max_batch_size: 1\n" + _io("input", "X", "FP32") + _io("output", "Y", "FP32", "1") + "sequence_batching {"
        ' control_input [{ name: "START"'
        " control [{ kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] }] }] }\n",
    ),
}
ENSEMBLE = (
    'platform: "ensemble"\n'
    + _io("input", "X", "FP32")
    + _io("output", "Z", "FP32")
    + """ensemble_scheduling { step [
  { model_name: "double" model_version: -1
    input_map { key: "X" value: "X" } output_map { key: "Y" value: "m" } },
  { model_name: "double" model_version: -1
    input_map { key: "X" value: "m" } output_map { key: "Y" value: "Z" } }
] }"""
)
BF16 = _io("input", "X", "BF16") + _io("output", "Y", "BF16")
BF16_SOURCE = """
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("Y", r.inputs()[0].to_dlpack())])
                for r in requests]
"""


def floats(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


def send_all(repo: bls.ModelRepository, sequence: int | str) -> None:
    """Send ten requests; the second and the last fail."""
    repo.infer("page", {"X": floats(0, 1, 2)}, request_id="first", parameters={"lang": "en"})
    repo.infer("page", {"X": floats(-1, -1)})
    repo.infer("words", {"T": ["a", "ü\0"]}, request_id="w")
    list(repo.stream("stream", {"X": floats(3, 4)}))
    repo.infer("twice", {"X": floats(1, 2)})
    repo.infer("bits", {"X": [1.5, -2]})
    for number in range(3):
        flags = (number == 0) | 2 * (number == 2)
        repo.infer("last", {"X": np.full((1, 2), number, np.float32)}, correlation_id=sequence, flags=flags)
    repo.infer("nobody", {"X": floats(1)})


def pipeline() -> bls.ModelRepository:
    """The models, loaded: page calls double and stream; twice is an ensemble, last has sequences."""
    repo = bls.ModelRepository()
    for name, (source, config) in MODELS.items():
        repo.define(name, HEAD + source, config=config)
    repo.define("bits", HEAD + BF16_SOURCE, config=BF16)
    repo.set_config("twice", ENSEMBLE)
    return repo
