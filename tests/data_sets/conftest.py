"""A repository with a small pipeline: `reader` asks `double` and names the answers; both batch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import bls_notebook as bls

HEAD = """
import ctypes
import numpy as np
import triton_python_backend_utils as pb_utils


def array(request, name="IN"):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()


def error(text):
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(text))


class TritonPythonModel:
"""
DOUBLE = (
    HEAD
    + """
    def execute(self, requests):
        return [self.answer(array(request)) for request in requests]

    def answer(self, x):
        if (x == 13).any():
            return error("thirteen")
        if (x == 666).any():
            ctypes.string_at(0)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x * 2)])
"""
)
READER = (
    HEAD
    + """
    async def execute(self, requests):
        return [await self.answer(array(request)) for request in requests]

    async def answer(self, x):
        if (x == 77).any():
            raise ValueError("seventy-seven")
        tensor = pb_utils.Tensor("IN", x)
        asked = pb_utils.InferenceRequest(model_name="double", requested_output_names=["OUT"], inputs=[tensor])
        response = await asked.async_exec()
        if response.has_error():
            return error(response.error().message())
        out = response.output_tensors()[0]
        names = np.array([[f"n{int(v)}".encode()] for v in out.as_numpy()[:, 0]], object)
        return pb_utils.InferenceResponse([out, pb_utils.Tensor("NAME", names)])
"""
)


def config(inputs: str = "IN:FP32:1", outputs: str = "OUT:FP32:1", batch: int = 8, more: str = "") -> str:
    lines = [f"max_batch_size: {batch}", more]
    for kind, tensors in (("input", inputs), ("output", outputs)):
        for tensor in tensors.split():
            name, datatype, dims = tensor.split(":")
            lines.append(f'{kind} {{ name: "{name}" data_type: TYPE_{datatype} dims: [{dims}] }}')
    return "\n".join(lines)


def define_pipeline(repo: bls.ModelRepository) -> None:
    repo.define("double", DOUBLE, config())
    repo.define("reader", READER, config(outputs="OUT:FP32:1 NAME:STRING:1"))


@pytest.fixture
def repo() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository() as repository:
        define_pipeline(repository)
        yield repository
