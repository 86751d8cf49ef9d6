"""A Python model that calls the model `m`, which adds or repeats what it gets."""

from __future__ import annotations

import bls_notebook as bls

SOURCE = """
import asyncio
import numpy as np
import triton_python_backend_utils as pb_utils

def ask(value):
    return pb_utils.InferenceRequest(
        model_name="m", requested_output_names=[OUTPUT],
        inputs=[pb_utils.Tensor(name, np.full(SHAPE, value, np.float32)) for name in INPUTS])

def total(response):
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return float(response.output_tensors()[0].as_numpy().sum())

class TritonPythonModel:
    KIND execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SUM", np.array([EXPRESSION], np.float32))])]
"""
CONFIG = """
input [{ name: "X" data_type: TYPE_FP32 dims: [1] }]
output [{ name: "SUM" data_type: TYPE_FP32 dims: [1] }]
"""
CALL = "total(ask(2).exec())"
GATHERED = "sum(map(total, await asyncio.gather(*[ask(i).async_exec() for i in range(20)])))"


def define_caller(
    repo: bls.ModelRepository, expression: str, inputs: tuple[str, ...], shape: tuple[int, ...], output: str
) -> None:
    """Define the model `caller`, whose answer is the expression's value."""
    words = {
        "OUTPUT": repr(output), "SHAPE": repr(shape), "INPUTS": repr(inputs), "EXPRESSION": expression,
        "KIND": "async def" if "await" in expression else "def",
    }  # fmt: skip
    source = SOURCE
    for word, text in words.items():
        source = source.replace(word, text)
    repo.define("caller", source, CONFIG)
