"""Configurations and sources of small models; the words that all of their sources know are in `HEAD`."""

from __future__ import annotations


def pbtxt(count: int = 1, decoupled: bool = False, inputs: str = "X:INT32", outputs: str = "Y:INT32") -> str:
    lines = [f"max_batch_size: 0\ninstance_group [ {{ count: {count}, kind: KIND_CPU }} ]"]
    if decoupled:
        lines.append("model_transaction_policy { decoupled: true }")
    for kind, tensors in (("input", inputs), ("output", outputs)):
        for tensor in tensors.split():
            name, _, datatype = tensor.partition(":")
            lines.append(f'{kind} [ {{ name: "{name}", data_type: TYPE_{datatype}, dims: [ -1 ] }} ]')
    return "\n".join(lines)


HEAD = """
import asyncio, contextvars, sys, threading, time
import numpy as np
import triton_python_backend_utils as pb
from tests.engine import gates


def number(request, name="X"):
    return int(pb.get_input_tensor_by_name(request, name).as_numpy().ravel()[0])


def answer(value):
    return pb.InferenceResponse([pb.Tensor("Y", np.array([value], np.int32))])


def ask(model, value=0):
    return pb.InferenceRequest(
        model_name=model, inputs=[pb.Tensor("X", np.array([value], np.int32))],
        requested_output_names=["Y"])


# As `answer` and `ask`, of models that batch.
def reply(value):
    return pb.InferenceResponse([pb.Tensor("Y", np.array([[value]], np.int32))])


def ask_row(model, value=0, **options):
    return pb.InferenceRequest(
        model_name=model, inputs=[pb.Tensor("X", np.array([[value]], np.int32))],
        requested_output_names=["Y"], **options)


def echo(request):
    return pb.InferenceResponse([pb.Tensor("Y", request.inputs()[0].as_numpy())])


def value_of(response):
    if response.has_error():
        raise pb.TritonModelException(response.error().message())
    return int(pb.get_output_tensor_by_name(response, "Y").as_numpy()[0])


FINAL = pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL
"""


def model(body: str) -> str:
    """Source of a model: the words above, and the methods of its class."""
    lines = "\n".join("    " + line for line in body.strip("\n").split("\n"))
    return f"{HEAD}\n\nclass TritonPythonModel:\n{lines}\n"


DOUBLE = model("""
def execute(self, requests):
    return [answer(2 * number(r)) for r in requests]
""")

ASYNC_DOUBLE = model("""
async def execute(self, requests):
    return [answer(2 * number(r)) for r in requests]
""")


# Says that it has begun, and answers once it may.
GATED = model("""
def execute(self, requests):
    gates.open_gate("begun")
    gates.pass_gate("go on")
    return [answer(number(r)) for r in requests]
""")


# Holds a request other than 0 until the gate opens.
HOLDS = model("""
def execute(self, requests):
    if number(requests[0]):
        gates.pass_gate("go on")
    return [answer(1)]

def finalize(self):
    gates.open_gate("finalized")
""")


def caller_of(name: str, x: int = 0) -> str:
    """Source of a model that answers what another one answers."""
    return model(f"def execute(self, requests):\n    return [answer(value_of(ask({name!r}, {x}).exec()))]")
