"""Models for these tests, and a short way to define them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import bls_notebook as bls

__all__ = ["CUPY_DOUBLE", "HEAD", "KEEP", "SAY", "cupy_model", "define", "model"]

HEAD = "import numpy as np\nimport triton_python_backend_utils as pb_utils\n"


def model(body: str, before: str = "") -> str:
    """Source of a model: what comes before its class, and the body of its class."""
    return f"{HEAD}{before}\nclass TritonPythonModel:{textwrap.indent(body, '    ')}"


def cupy_model(body: str) -> str:
    return model(body, "import cupy")


KEEP = model("""
def execute(self, requests):
    return [
        pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", request.inputs()[0])])
        for request in requests
    ]
""")
"""Gives its input back where it is."""

SAY = model("""
def execute(self, requests):
    out = []
    for request in requests:
        told = [str(t.__dlpack_device__()) for t in request.inputs()]
        out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(told, object))]))
    return out
""")
"""Says which device each of its inputs is on."""

CUPY_DOUBLE = cupy_model("""
def execute(self, requests):
    out = []
    for request in requests:
        tensor = request.inputs()[0]
        number = 0 if tensor.is_cpu() else tensor.__dlpack_device__()[1]
        with cupy.cuda.Device(number):
            x = cupy.asarray(tensor.as_numpy()) if tensor.is_cpu() else cupy.from_dlpack(tensor)
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", x * 2)]))
    return out
""")
"""Twice its input, on a GPU."""


def define(
    repo: bls.ModelRepository,
    name: str,
    source: str,
    *,
    force_cpu: bool = False,
    inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
    more: str = "",
) -> None:
    """Define a model with inputs and outputs of any length; ``FP32`` is the data type by default."""

    def tensors(kind: str, given: Mapping[str, str]) -> str:
        return "".join(f'{kind} {{ name: "{n}" data_type: TYPE_{t} dims: [ -1 ] }}\n' for n, t in given.items())

    config = tensors("input", inputs or {"IN": "FP32"}) + tensors("output", outputs or {"OUT": "FP32"}) + more
    if not force_cpu:
        config += 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }\n'
    repo.define(name, source, config)
