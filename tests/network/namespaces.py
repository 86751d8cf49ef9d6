"""Three folders with models of the same names, and the requests about them that a server answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("namespaces.json")
CODE = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        assert args["model_name"] != "broken" or not args["model_repository"].endswith("c/broken"), "no weights"
        self.adds = {"a": 1, "b": 10, "c": 100}[args["model_repository"].split("/")[-2]]

    def execute(self, requests):
        responses = []
        for request in requests:
            number = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", (number + self.adds).astype("float32"))]))
        return responses
"""
TENSORS = """
input { name: "X" data_type: TYPE_FP32 dims: [1] }
output { name: "Y" data_type: TYPE_FP32 dims: [1] }
"""
MODELS = ["a/same", "b/same", "a/only_a", "b/only_b", "a/broken", "c/broken"]
ENSEMBLES = {
    "a/pipe": ["same", "only_b"], "b/pipe": ["same", "only_a"], "b/pipe_b": ["same"], "c/far": ["only_a"],
    "c/lost": ["same"],
}  # fmt: skip
LOADS = ["same", "pipe", "pipe_b", "far", "lost", "broken"]
NAMES = ["same", "pipe", "pipe_b", "far", "lost", "broken", "only_a", "nothing"]


def write_folders(root: Path) -> list[Path]:
    """Write the folders ``a``, ``b`` and ``c`` and return them."""
    for name in MODELS:
        (root / name / "1").mkdir(parents=True)
        (root / name / "1/model.py").write_text(CODE)
        (root / name / "config.pbtxt").write_text(f'backend: "python"{TENSORS}')
    for name, steps in ENSEMBLES.items():
        (root / name / "1").mkdir(parents=True)
        tensors = ["X", *(f"t{number}" for number in range(1, len(steps))), "Y"]
        texts = [
            f'step {{ model_name: "{step}" model_version: -1 input_map {{ key: "X" value: "{tensors[number]}" }} '
            f'output_map {{ key: "Y" value: "{tensors[number + 1]}" }} }}'
            for number, step in enumerate(steps)
        ]
        config = f'platform: "ensemble"{TENSORS}ensemble_scheduling {{ {" ".join(texts)} }}'
        (root / name / "config.pbtxt").write_text(config)
    return [root / name for name in "abc"]


def requests() -> list[tuple[str, str, Any]]:
    """Return method, path and body of the requests, in their order."""
    infer = {"inputs": [{"name": "X", "shape": [1], "datatype": "FP32", "data": [1]}]}
    index = "POST", "/v2/repository/index", {}
    of_models = [("POST", f"/v2/models/{name}/infer", infer) for name in NAMES]
    control = "POST", "/v2/repository/models/{}/{}"
    out: list[tuple[str, str, Any]] = [index, *of_models]
    for name in LOADS:
        out += [(control[0], control[1].format(name, "load"), {}), index]
    out += of_models
    out += [("GET", f"/v2/models/{name}", None) for name in NAMES]
    out += [("GET", f"/v2/models/{name}/config", None) for name in ("pipe_b", "far", "pipe")]
    out += [("GET", f"/v2/models/{name}/stats", None) for name in ("same", "far")]
    for name in ("same", "broken"):
        out += [(control[0], control[1].format(name, "unload"), {}), *of_models]
    out += [(control[0], control[1].format("same", "load"), {}), *of_models]
    dependents = {"parameters": {"unload_dependents": True}}
    out += [(control[0], control[1].format("pipe", "unload"), dependents), *of_models]
    return out


def comparable(path: str, status: int, body: bytes, root: Path) -> list[Any]:
    """Return status and answer without what varies: times, the folders' place, fields of releases, tries of a load."""
    text = body.decode().replace(str(root), "ROOT")
    answer = json.loads(text) if text else None
    if path.endswith("/index"):  # an ensemble that cannot be resolved has a state and a reason here
        rows = [(row["name"], row.get("state", "")) for row in answer if row["name"] != "lost"]
        answer = sorted((name, "" if state in ("UNLOADING", "UNAVAILABLE") else state) for name, state in rows)
        answer = [list(row) for row in answer]
    elif path.endswith("/stats") and "model_stats" in answer:
        answer = [[row["name"], row["version"], row["inference_count"]] for row in answer["model_stats"]]
    elif path.endswith("/config") and "ensemble_scheduling" in answer:
        answer = answer["ensemble_scheduling"]["step"]
    elif path.endswith("/infer") and "outputs" in answer:
        answer = answer["outputs"]
    if "/lost" in path and path.endswith(("infer", "lost")):  # which has been tried here
        answer = {"error": answer["error"].replace("has no available versions", "is not found")}
    return [status, answer]
