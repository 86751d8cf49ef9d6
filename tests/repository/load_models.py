"""The models of test_under_load: each answers a function of its input, so that a wrong answer is known."""

from __future__ import annotations

from dataclasses import dataclass

from tests.engine.ensembles import ensemble

HEAD = """
import asyncio, sys, time
import numpy as np
import triton_python_backend_utils as pb
from tests.repository import load_models as shared

FINAL = pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def given(request, name="X"):
    return pb.get_input_tensor_by_name(request, name).as_numpy()


def answer(array):
    return pb.InferenceResponse([pb.Tensor("Y", np.asarray(array, np.int32))])


def ask(model, array):
    tensors = [pb.Tensor("X", np.asarray(array, np.int32))]
    return pb.InferenceRequest(model_name=model, inputs=tensors, requested_output_names=["Y"])


def got(response):
    if response.has_error():
        raise pb.TritonModelException(response.error().message())
    return pb.get_output_tensor_by_name(response, "Y").as_numpy()


class TritonPythonModel:
    def initialize(self, args):
        shared.alive.add(self)
        self.sums = {}

"""
alive: set[object] = set()  # instances that were initialized and not finalized

_FINALIZE = """
    def finalize(self):
        shared.alive.discard(self)
"""


def _source(body: str) -> str:
    return HEAD + "\n".join("    " + line for line in body.strip("\n").split("\n")) + _FINALIZE


def _each(expression: str, before: str = "pass") -> str:
    return f"def execute(self, requests):\n    {before}\n    return [answer({expression}) for r in requests]"


_PLAIN = _each("2 * given(r)")
_BATCHES = _each("3 * given(r)", "time.sleep(0.0005 * (len(requests) > 1))")
_GATHERS = """
async def execute(self, requests):
    out = []
    for r in requests:
        await asyncio.sleep(0)
        x = given(r)
        asked = [ask("plain", x).async_exec(), ask("batches", x[None]).async_exec()]
        asked.append(ask("streams_async", x).async_exec(decoupled=True))
        one, two, many = await asyncio.gather(*asked)
        total = got(one) + got(two)[0]
        for response in many:
            if response.has_error():
                raise pb.TritonModelException(response.error().message())
        out.append(answer(total))
    return out
"""
_STREAMS_ASYNC = """
async def execute(self, requests):
    for r in requests:
        sender, x = r.get_response_sender(), given(r)
        for i in range(3):
            await asyncio.sleep(0 if x[0] % 5 else 0.001)
            sender.send(answer(x + i), FINAL if i == 2 else 0)
"""
_SUMS = """
def execute(self, requests):
    out = []
    for r in requests:
        if not given(r, "READY")[0]:
            out.append(answer(given(r)))
            continue
        key = r.correlation_id()
        if given(r, "START")[0]:
            self.sums[key] = 0
        self.sums[key] += int(given(r).ravel()[0])
        out.append(answer([[self.sums[key]]]))
        if r.flags() & pb.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END:
            del self.sums[key]
    return out
"""
_FAILS = """
def execute(self, requests):
    out = []
    for r in requests:
        x = given(r)
        kind = int(x[0]) % 8
        if kind == 1:
            raise ValueError("fails on purpose")
        if kind == 3:
            sys.exit("fails on purpose")
        if kind == 5:
            return None
        out.append(pb.InferenceResponse(error=pb.TritonError("fails on purpose")) if kind == 7 else answer(x))
    return out
"""
_ITSELF = """
def execute(self, requests):
    out = []
    for r in requests:
        x = given(r)
        out.append(answer(got(ask("itself", x - 1).exec()) + 1 if x[0] % 3 else 3 * (x // 3)))
    return out
"""


def _config(more: str = "", batch: int = 0, count: int = 1) -> str:
    dims = "[ 1 ]" if batch else "[ -1 ]"
    return (
        f'backend: "python" max_batch_size: {batch}\n'
        f'input {{ name: "X" data_type: TYPE_INT32 dims: {dims} }}\n'
        f'output {{ name: "Y" data_type: TYPE_INT32 dims: {dims} }}\n'
        f"instance_group {{ count: {count} kind: KIND_CPU }}\n{more}"
    )


_CONTROL = """
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
  control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } }
"""


def _sequences(way: str) -> str:
    return _config(f"sequence_batching {{ {way} {_CONTROL} }}", 4)


_DECOUPLED = "model_transaction_policy { decoupled: true }"
_QUEUE = """dynamic_batching {
  max_queue_delay_microseconds: 300 priority_levels: 2 default_priority_level: 2
  default_queue_policy { max_queue_size: 24 allow_timeout_override: true }
}"""


@dataclass(frozen=True)
class Loaded:
    """A model of the load: its source, its configuration, and what it answers."""

    source: str
    config: str
    kind: str = "plain"  # "batch", "stream", "sequence"
    factor: int = 1


MODELS = {
    "plain": Loaded(_source(_PLAIN), _config(count=2), factor=2),
    "gathers": Loaded(_source(_GATHERS), _config(), factor=5),
    "streams_async": Loaded(_source(_STREAMS_ASYNC), _config(_DECOUPLED), "stream"),
    "batches": Loaded(_source(_BATCHES), _config(_QUEUE, 4), "batch", 3),
    "sums_oldest": Loaded(_source(_SUMS), _sequences("oldest { max_candidate_sequences: 4 }"), "sequence"),
    "fails": Loaded(_source(_FAILS), _config()),
    "itself": Loaded(_source(_ITSELF), _config(count=3)),
    "pipeline": Loaded(
        "", ensemble(("plain", {"X": "X"}, {"Y": "y"}), ("itself", {"X": "y"}, {"Y": "Y"})), factor=2
    ),
    "fan": Loaded(
        "",
        ensemble(("plain", {"X": "X"}, {"Y": "y"}), ("streams_async", {"X": "y"}, {"Y": "Y"}),
                 more=_DECOUPLED),
        "stream", factor=2,
    ),
}  # fmt: skip
