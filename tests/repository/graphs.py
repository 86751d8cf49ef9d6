"""BLS graphs of known truth: which calls of an `execute` depend on which. For benchmarks too.

A callee adds one (`add`) or doubles (`twice`), each after a delay. Bodies end with `out`, a list of arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import bls_notebook as bls

HEAD = """\
import json, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

def ask(model, x, raw=False, **options):
    given = x if isinstance(x, pb_utils.Tensor) else pb_utils.Tensor("IN", x)
    request = pb_utils.InferenceRequest(
        model_name=model, requested_output_names=["OUT"], inputs=[given], **options)
    response = request.exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    tensor = pb_utils.get_output_tensor_by_name(response, "OUT")
    return tensor if raw else tensor.as_numpy()
"""
CALLEE = """\
import time
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        time.sleep({delay})
        out = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", {what})]))
        return out
"""
COUNTER = """\
import time
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def initialize(self, arguments):
        self.seen = {}
    def execute(self, requests):
        time.sleep(DELAY)
        out = []
        for request in requests:
            key = request.correlation_id()
            self.seen[key] = 0.0 if request.flags() & 1 else self.seen.get(key, 0.0) + 1
            answer = np.array([self.seen[key]], np.float32)
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", answer)]))
        return out
"""
SHARED = """\
import time
import triton_python_backend_utils as pb_utils
import builtins
class TritonPythonModel:
    def execute(self, requests):
        out = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            before = getattr(builtins, "_bls_shared", 0.0)
            time.sleep(DELAY)
            builtins._bls_shared = 0.0 if READS else 5.0
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x * 0 + (before if READS else 0))]))
        return out
"""
CONFIG = """
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
SEQUENCE = CONFIG + "sequence_batching { max_sequence_idle_microseconds: 60000000 }"


class Graph(NamedTuple):
    """The body of an `execute`, and the calls that each call depends on; are answers equal?"""

    name: str
    body: str
    depends: tuple[tuple[int, ...], ...]
    equal: bool = True


GRAPHS = (
    Graph("chain", "out = [ask('add', ask('twice', ask('add', x)))]", ((), (0,), (0, 1))),
    Graph("two apart", "a = ask('add', x); b = ask('twice', x); out = [a, b]", ((), ())),
    Graph(
        "diamond",
        "a = ask('add', x)\nb = ask('twice', a); c = ask('add2', a)\nout = [ask('twice2', b + c)]",
        ((), (0,), (0,), (0, 1, 2)),
    ),
    Graph(
        "a diamond by tensors",
        "a = ask('add', x, raw=True)\na = pb_utils.Tensor('IN', a.as_numpy())\n"
        "b = ask('twice', a); c = ask('add2', a); out = [b, c]",
        ((), (0,), (0,)),
    ),
    Graph(
        "a loop that carries", "y = x\nfor _ in range(3):\n    y = ask('add', y)\nout = [y]",
        ((), (0,), (0, 1)),
    ),
    Graph(
        "a loop that carries what it computes",
        "y = x\nfor _ in range(3):\n    y = ask('add', y) * 0.5\nout = [y]",
        ((), (0,), (0, 1)),
    ),
    Graph(
        "fan-out", "out = [ask(name, x) for name in ('add', 'twice', 'add2', 'twice2')]", ((), (), (), ()),
    ),
    Graph("fan-out of pieces", "out = [ask('add', x[i:i+1]) for i in range(3)]", ((), (), ())),
    Graph(
        "a branch", "a = ask('add', x)\nb = ask('twice' if a.sum() > 3 else 'add2', x); out = [a, b]",
        ((), (0,)),
    ),
    Graph(
        "a branch by item",
        "a = ask('add', x)\nif float(a[0]) > -1e9:\n    out = [ask('twice', x)]\nelse:\n    out = [a]",
        ((), (0,)),
    ),
    Graph(
        "asarray hides nothing",
        "a = np.asarray(ask('add', x)) * 2\nout = [ask('twice', a)]",
        ((), (0,)),
    ),
    Graph(
        "a list of numbers",
        "a = ask('add', x).tolist()\nout = [ask('twice', np.array(a, np.float32))]",
        ((), (0,)),
    ),
    Graph(
        "a buffer that is used again",
        "buffer = np.array(x); a = ask('add', buffer); buffer[:] = 7; b = ask('twice', buffer); out = [a, b]",
        ((), ()),
    ),
    Graph(
        "a buffer that is filled by an answer",
        "buffer = np.zeros(4, np.float32); buffer[:] = ask('add', x); out = [ask('twice', buffer)]",
        ((), (0,)),
    ),
    Graph(
        "two chains",
        "a = ask('add', x); b = ask('twice', a); c = ask('add2', x); d = ask('twice2', c); out = [b, d]",
        ((), (0,), (), (2,)),
    ),
    Graph(
        "a sequence",
        "out = [ask('counter', x, correlation_id=5, flags=f) for f in (1, 0, 2)]",
        ((), (0,), (0, 1)),
    ),
    Graph(
        "a sequence beside another call",
        "a = ask('counter', x, correlation_id=5, flags=1); b = ask('add', x)\n"
        "c = ask('counter', x, correlation_id=5, flags=2); out = [a, b, c]",
        ((), (), (0,)),
    ),
    Graph("through DLPack",
        "a = ask('add', x, raw=True)\nb = pb_utils.Tensor.from_dlpack('IN', a.to_dlpack())\n"
        "out = [ask('twice', b)]",
        ((), (0,)),
    ),
    Graph(
        "a global of two models", "a = ask('writes', x); b = ask('reads', x); out = [a, b]", ((), ()), False,
    ),
    Graph("one call", "out = [ask('add', x)]", ((),)),
    Graph(
        "an error that is caught",
        "a = ask('add', x)\ntry:\n    ask('fails', x)\nexcept pb_utils.TritonModelException:\n    a = a * 3\n"
        "out = [a]",
        ((), ()), False,
    ),
    Graph(
        "a call for want of another",
        "a = ask('add', x)\n"
        "r = pb_utils.InferenceRequest(model_name='fails', inputs=[pb_utils.Tensor('IN', x)],\n"
        "    requested_output_names=['OUT']).exec()\n"
        "out = [a, ask('twice', x) if r.has_error() else x]",
        ((), (), (1,)), False,
    ),
)  # fmt: skip


def model_of(graph: Graph) -> str:
    """Return the source of a model that runs a graph."""
    lines = "".join(f"        {line}\n" for line in graph.body.splitlines())
    return (
        f"{HEAD}\nclass TritonPythonModel:\n    def execute(self, requests):\n"
        "        x = pb_utils.get_input_tensor_by_name(requests[0], 'IN').as_numpy()\n"
        f"{lines}"
        "        answer = np.concatenate([np.asarray(o, np.float32) for o in out])\n"
        "        return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', answer)])]\n"
    )


def define_callees(repo: bls.ModelRepository, delay: float = 0.0) -> None:
    """Define what the graphs call."""
    for name, what in ("add", "x + 1"), ("add2", "x + 1"), ("twice", "x * 2"), ("twice2", "x * 2"):
        repo.define(name, CALLEE.format(delay=delay, what=what), CONFIG)
    repo.define("fails", CALLEE.format(delay=delay, what="x.no_such_thing"), CONFIG)
    repo.define("counter", COUNTER.replace("DELAY", str(delay)), SEQUENCE)
    for name, reads in ("writes", "False"), ("reads", "True"):
        repo.define(name, SHARED.replace("DELAY", str(max(delay, 0.01))).replace("READS", reads), CONFIG)
