"""Models that do what Triton passes in silence, for the tests of warnings."""

from __future__ import annotations

import textwrap

import numpy as np

import bls_notebook as bls

HEAD = """
import asyncio
import numpy as np
import triton_python_backend_utils as pb

FINAL = pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL

def x(request):
    return pb.get_input_tensor_by_name(request, "X").as_numpy()

def tensor(name, value):
    return pb.Tensor(name, np.asarray(value, np.float32))

def ask(model, names=("Y",)):
    return pb.InferenceRequest(
        model_name=model, inputs=[tensor("X", [1])], requested_output_names=list(names))

class TritonPythonModel:
"""


def model(execute: str) -> str:
    return HEAD + textwrap.indent(textwrap.dedent(execute).strip(), "    ")


def returning(*tensors: str) -> str:
    return model(f"""
        def execute(self, requests):
            return [pb.InferenceResponse([{", ".join(tensors)}]) for r in requests]
    """)


def config(*outputs: str, decoupled: bool = False, batch: int = 0) -> str:
    lines = [
        f"max_batch_size: {batch}",
        "instance_group [ { count: 1, kind: KIND_CPU } ]",
        'input [ { name: "X", data_type: TYPE_FP32, dims: [ -1 ] } ]',
    ]
    for output in outputs or ("Y FP32 -1",):
        name, datatype, dims = output.split(maxsplit=2)
        lines.append(f'output [ {{ name: "{name}", data_type: TYPE_{datatype}, dims: [ {dims} ] }} ]')
    if decoupled:
        lines.append("model_transaction_policy { decoupled: true }")
    return "\n".join(lines)


X = {"X": np.array([1], np.float32)}


def warnings_of(repo: bls.ModelRepository, name: str = "m", **options: object) -> tuple[str, ...]:
    answer = repo.infer(name, **{"inputs": X, **options})  # type: ignore[arg-type]
    assert answer.error is None, answer.error
    return answer.warnings
