"""Models that keep, share and drop memory in every way that the tests of the memory ledger need."""

from __future__ import annotations

import bls_notebook as bls

# What the model `worker` does with its input is said by its input OP.
ECHO, DOUBLE, KEEP_INPUT, KEEP_OUTPUT, PIN, FORGET, NEST, CLOSURE, GPU, NEST_ASYNC = range(10)

_CONFIG = """
max_batch_size: 0
instance_group [ {{ count: {count}, kind: KIND_CPU }} ]
parameters {{ key: "FORCE_CPU_ONLY_INPUT_TENSORS" value: {{ string_value: "no" }} }}
input [ {{ name: "OP", data_type: TYPE_INT32, dims: [ 1 ] }} ]
input [ {{ name: "X", data_type: TYPE_FP32, dims: [ -1 ] }} ]
output [ {{ name: "Y", data_type: TYPE_FP32, dims: [ -1 ] }} ]
{more}
"""

_HEAD = """
import numpy as np
import triton_python_backend_utils as pb
import bls_notebook as bls

ECHO, DOUBLE, KEEP_INPUT, KEEP_OUTPUT, PIN, FORGET, NEST, CLOSURE, GPU, NEST_ASYNC = range(10)


def op_of(request):
    tensor = pb.get_input_tensor_by_name(request, "OP")
    if tensor.is_cpu():
        return int(tensor.as_numpy()[0])
    return int(tensor._array.get()[0])


def doubled(tensor):
    if tensor.is_cpu():
        return pb.Tensor("Y", tensor.as_numpy() * 2)
    array = bls.cupy().from_dlpack(tensor)
    with array.device:
        return pb.Tensor.from_dlpack("Y", array * 2)


def ask(model, op, tensor):
    return pb.InferenceRequest(
        model_name=model, requested_output_names=["Y"],
        inputs=[pb.Tensor("OP", np.array([op], np.int32)), tensor])


def output(response):
    if response.has_error():
        raise pb.TritonModelException(response.error().message())
    return pb.get_output_tensor_by_name(response, "Y")
"""

_WORKER = """
class TritonPythonModel:
    def initialize(self, args):
        self.kept, self.later = [], []

    def execute(self, requests):
        return [pb.InferenceResponse([self.answer(request)]) for request in requests]

    def answer(self, request):
        op = op_of(request)
        tensor = pb.get_input_tensor_by_name(request, "X")
        if op == FORGET:
            self.kept.clear()
            self.later.clear()
        if op == KEEP_INPUT:
            self.kept.append(tensor)
        if op == ECHO:
            if tensor.is_cpu():
                return pb.Tensor("Y", tensor.as_numpy())
            return pb.Tensor.from_dlpack("Y", tensor)
        if op == PIN:
            base = np.arange(tensor.shape()[0] * 4, dtype=np.float32)
            self.kept.append(base[1:3])
            return pb.Tensor("Y", base[: tensor.shape()[0]])
        if op == GPU:
            return pb.Tensor.from_dlpack("Y", bls.cupy().arange(tensor.shape()[0], dtype=np.float32))
        if op == NEST:
            return output(ask("other", DOUBLE, pb.Tensor.from_dlpack("X", tensor)).exec())
        made = doubled(tensor)
        if op == KEEP_OUTPUT:
            self.kept.append({"made": made})
        if op == CLOSURE:
            self.later.append(lambda: made)
        return made
"""

_ASYNC = """
import asyncio


class TritonPythonModel:
    async def execute(self, requests):
        out = []
        for request in requests:
            tensor = pb.get_input_tensor_by_name(request, "X")
            asked = [ask("other", DOUBLE, tensor).async_exec() for _ in range(3)]
            responses = await asyncio.gather(*asked)
            out.append(pb.InferenceResponse([output(responses[op_of(request) % 3])]))
        return out
"""

_STREAM = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            tensor = pb.get_input_tensor_by_name(request, "X")
            for _ in range(op_of(request)):
                sender.send(pb.InferenceResponse([doubled(tensor)]))
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def load_all(repo: bls.ModelRepository) -> None:
    """Load `worker` and `other` (sync, the same), `gatherer` (async) and `streamer` (decoupled)."""
    for name in ("other", "worker"):
        repo.define(name, _HEAD + _WORKER, _CONFIG.format(count=2 if name == "other" else 1, more=""))
    repo.define("gatherer", _HEAD + _ASYNC, _CONFIG.format(count=1, more=""))
    decoupled = "model_transaction_policy { decoupled: true }"
    repo.define("streamer", _HEAD + _STREAM, _CONFIG.format(count=1, more=decoupled))
