"""Models with known dependences, in common shapes.

`order` has the calls by the earliest stage in which they can be sent: `a+b, c` says that `a` and `b` can be
in flight together, and that `c` needs one of them or may need it; "?" that nothing can be known. `PLACE` is a
folder for files.
"""

from __future__ import annotations

from typing import NamedTuple

import bls_notebook as bls

CONFIG = """
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
HEAD = """\
import asyncio, concurrent.futures, contextvars, ctypes, json, os, time
import numpy as np
import triton_python_backend_utils as pb_utils

PLACE = {place!r}

def ask(model, x):
    inputs = [pb_utils.Tensor("IN", np.asarray(x, np.float32))]
    return pb_utils.InferenceRequest(model_name=model, requested_output_names=["OUT"], inputs=inputs)

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
    "a": "answer = x * 2 + 1",
    "b": "answer = x * 3 + 1",
    "c": "answer = x * 4 + 1",
    "r": "answer = (x + np.random.rand()).astype(np.float32)",
    "cnt": "answer = x * 0 + self.count",
    "mem": "self.last = x.copy() if x[0] >= 0 else self.last; answer = self.last",
    "fails": "answer = undefined",
    "dec": STREAM,
    "nest": NESTED,
    "file": "answer = np.load({place!r} + '/x.npy').astype(np.float32)",
    "writes": "builtins._shared = 5.0; answer = x * 0",
    "reads": "answer = x * 0 + getattr(builtins, '_shared', 0.0); builtins._shared = 0.0",
    "lang": "answer = np.array([b'en'], object)",
    "js": 'answer = np.array([b\'{{"route": "a", "scale": 2.0}}\'], object)',
    "cls": "answer = np.array([1], np.int64)",
    "cls2": "answer = np.array([1], np.int64)",
}
TYPES = {"lang": "TYPE_STRING", "js": "TYPE_STRING", "cls": "TYPE_INT64", "cls2": "TYPE_INT64"}


class Graph(NamedTuple):
    """The methods of a model, and the order of its calls."""

    name: str
    body: str
    order: str
    is_async: bool = False


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


GRAPHS = (
    Graph(
        "row indep",
        """\
    def one(self, x):
        a = out(ask("a", x).exec())
        b = out(ask("b", x).exec())
        c = out(ask("c", x).exec())
        return ok(a + b + c)
""",
        "a+b+c",
    ),
    Graph(
        "chain numpy",
        """\
    def one(self, x):
        a = out(ask("a", x).exec())
        b = out(ask("b", a + 1).exec())
        c = out(ask("c", b * 2).exec())
        return ok(c)
""",
        "a, b, c",
    ),
    Graph(
        "loop",
        """\
    def one(self, x):
        total = np.zeros_like(x)
        for i in range(4):
            total += out(ask("a", x + i).exec())
        return ok(total)
""",
        "a+a+a+a",
    ),
    Graph(
        "comprehension",
        """\
    def one(self, x):
        return ok(np.concatenate([out(ask("b", x + i).exec()) for i in range(4)]))
""",
        "b+b+b+b",
    ),
    Graph(
        "helper method",
        """\
    def fetch(self, model, x):
        r = ask(model, x).exec()
        return out(r)
    def one(self, x):
        a = self.fetch("a", x)
        b = self.fetch("b", x)
        return ok(self.fetch("c", a + b))
""",
        "a+b, c",
    ),
    Graph(
        "try except",
        """\
    def one(self, x):
        try:
            a = out(ask("a", x).exec())
        except Exception:
            a = x
        try:
            b = out(ask("b", x).exec())
        except Exception:
            b = x
        return ok(a - b)
""",
        "a+b",
    ),
    Graph(
        "float if",
        """\
    def one(self, x):
        a = out(ask("a", x).exec())
        if float(a.sum()) > 3:
            b = out(ask("b", x).exec())
        else:
            b = out(ask("c", x).exec())
        return ok(a + b)
""",
        "a, b",
    ),
    Graph(
        "shape only",
        """\
    def one(self, x):
        a = out(ask("a", x).exec())
        b = out(ask("b", np.ones(len(a))).exec())
        c = out(ask("c", np.ones(a.shape)).exec())
        return ok(a + b + c)
""",
        "a, b+c",
    ),
    Graph(
        "member",
        """\
    def initialize(self, args):
        self.state = 0.0
    def one(self, x):
        self.state = 0.0
        self.step("a", x)
        self.step("b", x)
        return ok([self.state])
    def step(self, m, x):
        r = out(ask(m, x + self.state).exec())
        self.state += float(r.sum())
""",
        "a, b",
    ),
    Graph(
        "file",
        """\
    def one(self, x):
        a = out(ask("a", x).exec())
        np.save(PLACE + "/t.npy", a)
        b = out(ask("b", np.load(PLACE + "/t.npy")).exec())
        return ok(b)
""",
        "a, b",
    ),
    Graph(
        "global",
        """\
    def one(self, x):
        global LAST
        LAST = out(ask("a", x).exec())
        return ok(self.two(x))
    def two(self, x):
        return out(ask("b", x + LAST).exec())
""",
        "a, b",
    ),
    Graph(
        "closure",
        """\
    def one(self, x):
        acc = []
        def step(m, v):
            acc.append(out(ask(m, v).exec()))
        step("a", x)
        step("b", x)
        step("c", acc[0] + acc[1])
        return ok(acc[2])
""",
        "a+b, c",
    ),
    Graph(
        "random callee",
        """\
    def one(self, x):
        a = out(ask("r", x).exec())
        b = out(ask("r", x).exec())
        return ok(a + b)
""",
        "r, r",
    ),
    Graph(
        "stateful callee",
        """\
    def one(self, x):
        a = out(ask("cnt", x).exec())
        b = out(ask("cnt", x).exec())
        return ok(a * 10 + b)
""",
        "cnt, cnt",
    ),
    Graph(
        "list append mutated",
        """\
    def one(self, x):
        buf = x.copy()
        a = out(ask("a", buf).exec())
        buf += 1
        b = out(ask("b", buf).exec())
        return ok(a + b)
""",
        "a+b",
    ),
    Graph(
        "error shortcut",
        """\
    def one(self, x):
        r = ask("a", x).exec()
        if r.has_error():
            return pb_utils.InferenceResponse(error=r.error())
        s = ask("b", x).exec()
        if s.has_error():
            return pb_utils.InferenceResponse(error=s.error())
        return ok(out(r) + out(s))
""",
        "a+b",
    ),
    Graph(
        "while",
        """\
    def one(self, x):
        y, n = x, 0
        while n < 5 and float(np.abs(y).max()) < 20:
            y = out(ask("a", y).exec())
            n += 1
        return ok(y)
""",
        "a, a, a",
    ),
    Graph(
        "side write",
        """\
    def one(self, x):
        a = out(ask("a", x).exec())
        with open(PLACE + "/log.txt", "a") as f:
            f.write(f"a {a.sum()}\\n")
        b = out(ask("b", x).exec())
        with open(PLACE + "/log.txt", "a") as f:
            f.write(f"b {b.sum()}\\n")
        return ok(a + b)
""",
        "a+b",
    ),
    Graph(
        "dict comp item",
        """\
    def one(self, x):
        d = {m: out(ask(m, x).exec()) for m in ("a", "b", "c")}
        return ok(sum(d.values()))
""",
        "a+b+c",
    ),
    Graph(
        "sorted first then map",
        """\
    def one(self, x):
        k = int(np.argmax(out(ask("a", x).exec())))
        return ok(sum(map(lambda m: out(ask(m, x + k).exec()), ["b", "c"])))
""",
        "a, b+c",
    ),
)
