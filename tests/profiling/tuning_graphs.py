"""Six BLS graphs that wait, of which every setting can be tried. For benchmarks too."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import bls_notebook as bls

HEAD = """\
import asyncio, time
import numpy as np
import triton_python_backend_utils as pb_utils

def request(model, x):
    return pb_utils.InferenceRequest(
        model_name=model, requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", x)])

def value(response):
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()

def ask(model, x):
    return value(request(model, x).exec())

async def gather(x, *models):
    return [value(r) for r in await asyncio.gather(*(request(m, x).async_exec() for m in models))]

def answers(requests, arrays):
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", a)]) for a in arrays]

def inputs(requests):
    return [pb_utils.get_input_tensor_by_name(r, "IN").as_numpy() for r in requests]

"""
_CALLER = """\
class TritonPythonModel:
    {how} execute(self, requests):
        return answers(requests, [{body} for x in inputs(requests)])
"""
_CALLEE = """\
class TritonPythonModel:
    def execute(self, requests):
        {work}
        return answers(requests, inputs(requests))
"""
_CONFIG = """
input [{ name: "IN" data_type: TYPE_FP32 dims: [1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [1] }]
"""


class TuningGraph(NamedTuple):
    """A graph: its callers by their bodies, its callees by what they do, the last model to be asked.

    Of ``{ms}`` comes the unit of time. ``batches`` names a callee that takes batches.
    """

    name: str
    callers: dict[str, str]
    callees: dict[str, str]
    batches: str = ""

    @property
    def models(self) -> tuple[str, ...]:
        return (*self.callees, *self.callers)

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        return {"IN": np.ones(1, np.float32)}


def _sleep(units: float) -> str:
    return f"time.sleep({units} * {{unit}})"


GRAPHS = (
    TuningGraph("chain", {"root": "ask('b', ask('a', x))"}, {"a": _sleep(1), "b": _sleep(3)}),
    TuningGraph("fan-out", {"root": "sum(await gather(x, 'a', 'b', 'b'))"}, {"a": _sleep(2), "b": _sleep(1)}),
    TuningGraph(
        "diamond", {"root": "ask('c', sum(await gather(ask('a', x), 'b', 'b')))"},
        {"a": _sleep(1), "b": _sleep(2), "c": _sleep(1)},
    ),
    TuningGraph(
        "batchable callee", {"root": "ask('b', x[None])[0]"},
        # A batch costs little more than one of its requests.
        {"b": "time.sleep({unit} * (1.8 + 0.2 * len(requests)))"}, batches="b",
    ),
    TuningGraph(
        "shared callee",
        {"left": "ask('shared', x)", "right": "ask('shared', ask('shared', x))",
         "root": "sum(await gather(x, 'left', 'right'))"},
        {"shared": _sleep(1)},
    ),
    TuningGraph(
        "computes and waits", {"root": "ask('waits', ask('computes', x))"},
        {"computes": "ends = time.thread_time() + {unit} / 2\n        while time.thread_time() < ends: pass",
         "waits": _sleep(3)},
    ),
)  # fmt: skip


def define(repo: bls.ModelRepository, graph: TuningGraph, unit: float = 0.02) -> None:
    """Define the models of a graph, with an instance each; `unit` is in seconds."""
    for name, work in graph.callees.items():
        config = _CONFIG + ("max_batch_size: 4" if name == graph.batches else "")
        repo.define(name, HEAD + _CALLEE.format(work=work.format(unit=unit)), config)
    for name, body in graph.callers.items():
        how = "async def" if "await" in body else "def"
        repo.define(name, HEAD + _CALLER.format(how=how, body=body), _CONFIG)
