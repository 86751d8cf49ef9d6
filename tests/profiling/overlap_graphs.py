"""Models with known dependences, in common shapes.

`order` has the calls by the earliest stage in which they can be sent: `a+b, c` says that `a` and `b` can be
in flight together, and that `c` needs one of them or may need it; "?" that nothing can be known. `PLACE` is a
folder for files. In `data/overlap_graphs.txt`, a line with the name and the order of the calls comes before the body of
`one`, or all methods. A name with a star: a graph much like another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

import bls_notebook as bls

CONFIG = """
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
HEAD = """\
import asyncio, concurrent.futures, contextvars, ctypes, json, os, time, zlib
import numpy as np
import triton_python_backend_utils as pb_utils

PLACE = {place!r}

def ask(model, x, **options):
    inputs = [pb_utils.Tensor("IN", np.asarray(x, np.float32))]
    return pb_utils.InferenceRequest(model_name=model, requested_output_names=["OUT"], inputs=inputs, **options)

def out(r):
    if r.has_error():
        raise pb_utils.TritonModelException(r.error().message())
    return pb_utils.get_output_tensor_by_name(r, "OUT").as_numpy()

def ok(a):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.asarray(a, np.float32).reshape(-1))])

class TritonPythonModel:
    {coroutine}def execute(self, requests):
        return [{wait}self.one(pb_utils.get_input_tensor_by_name(r, "IN").as_numpy()) for r in requests]
"""
CALLEE = """\
import builtins, json, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.count, self.last = 0, np.zeros(3, np.float32)
    def execute(self, requests):
        return [self.one(r, pb_utils.get_input_tensor_by_name(r, "IN").as_numpy()) for r in requests]
    def one(self, r, x):
        time.sleep({delay})
        self.count += 1
        {body}
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", answer)])
"""
STREAM = """for n in range(3):
            r.get_response_sender().send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x + n)]))
        r.get_response_sender().send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None"""
NESTED = """for name in ("a", "b"):
            q = pb_utils.InferenceRequest(
                model_name=name, requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", x)]).exec()
            x = q.output_tensors()[0].as_numpy()
        answer = x"""
CALLEES = {
    "a": "answer = x * 2 + 1", "b": "answer = x * 3 + 1", "c": "answer = x * 4 + 1",
    "r": "answer = (x + np.random.rand()).astype(np.float32)", "cnt": "answer = x * 0 + self.count",
    "mem": "self.last = x.copy() if x[0] >= 0 else self.last; answer = self.last", "fails": "answer = undefined",
    "db": "self.last = x if 'put' in r.parameters() else self.last; answer = self.last * (self.last == x).all()",
    "dec": STREAM, "nest": NESTED, "file": "answer = np.load({place!r} + '/x.npy').astype(np.float32)",
    "writes": "builtins._shared = 5.0; answer = x * 0",
    "reads": "answer = x * 0 + getattr(builtins, '_shared', 0.0); builtins._shared = 0.0",
    "lang": "answer = np.array([b'en'], object)",
    "js": 'answer = np.array([b\'{{"route": "a", "scale": 2.0}}\'], object)', "cls": "answer = np.array([1], np.int64)",
    "cls2": "answer = np.array([1], np.int64)",
}  # fmt: skip
TYPES = {"lang": "TYPE_STRING", "js": "TYPE_STRING", "cls": "TYPE_INT64", "cls2": "TYPE_INT64"}


class Graph(NamedTuple):
    """The methods of a model, and the order of its calls."""

    name: str
    body: str
    order: str
    is_async: bool = False
    repeats: bool = False


def source_of(graph: Graph, place: str) -> str:
    """Return the source of the model of a graph."""
    coroutine, wait = ("async ", "await ") if graph.is_async else ("", "")
    return HEAD.format(place=place, coroutine=coroutine, wait=wait) + graph.body


def define_callees(repo: bls.ModelRepository, place: str, delay: float = 0.0, instances: int = 1) -> None:
    """Define the models that graphs call."""
    for name, body in CALLEES.items():
        config = CONFIG
        if name in TYPES:
            first, _, _ = CONFIG.rpartition("output")
            config = first + f'output [ {{ name: "OUT" data_type: {TYPES[name]} dims: [ 1 ] }} ]'
        config += f"instance_group [ {{ count: {instances} kind: KIND_CPU }} ]"
        if name == "dec":
            config += "model_transaction_policy { decoupled: true }"
        body = body.replace("{place!r}", repr(place)).replace("{{", "{").replace("}}", "}")
        text = CALLEE.replace("{delay}", str(delay)).replace("{body}", body)
        if name == "dec":
            text = text.replace("        return [", "        [")
        repo.define(name, text, config=config)


def _graphs() -> Iterator[Graph]:
    text = (Path(__file__).parent / "data" / "overlap_graphs.txt").read_text("utf-8")
    for block in ("\n" + text).split("\n== ")[1:]:
        (head, _, body), is_async = block.partition("\n"), "await " in block
        name, _, order = head.rpartition(": ")
        one = "" if body.startswith(("def ", "async def ", "@")) else f"{'async ' * is_async}def one(self, x):\n"
        yield Graph(
            name.rstrip("*"),
            indent(one + indent(body, "    " * bool(one)), "    ") + "\n",
            order,
            is_async,
            name.endswith("*"),
        )


GRAPHS = tuple(_graphs())
