"""Models with known dependences, in common shapes.

`order` has the calls by the earliest stage in which they can be sent: `a+b, c` says that `a` and `b` can be
in flight together, and that `c` needs one of them or may need it; "?" that nothing can be known. `PLACE` is a
folder for files.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import indent
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


# A name and the order of the calls, then the body of `one`, or all methods.
_TEXT = r"""
== row indep: a+b+c
a = out(ask("a", x).exec())
b = out(ask("b", x).exec())
c = out(ask("c", x).exec())
return ok(a + b + c)
== chain numpy: a, b, c
a = out(ask("a", x).exec())
b = out(ask("b", a + 1).exec())
c = out(ask("c", b * 2).exec())
return ok(c)
== loop: a+a+a+a
total = np.zeros_like(x)
for i in range(4):
    total += out(ask("a", x + i).exec())
return ok(total)
== comprehension: b+b+b+b
return ok(np.concatenate([out(ask("b", x + i).exec()) for i in range(4)]))
== helper method: a+b, c
def fetch(self, model, x):
    r = ask(model, x).exec()
    return out(r)
def one(self, x):
    a = self.fetch("a", x)
    b = self.fetch("b", x)
    return ok(self.fetch("c", a + b))
== try except: a+b
try:
    a = out(ask("a", x).exec())
except Exception:
    a = x
try:
    b = out(ask("b", x).exec())
except Exception:
    b = x
return ok(a - b)
== float if: a, b
a = out(ask("a", x).exec())
if float(a.sum()) > 3:
    b = out(ask("b", x).exec())
else:
    b = out(ask("c", x).exec())
return ok(a + b)
== shape only: a, b+c
a = out(ask("a", x).exec())
b = out(ask("b", np.ones(len(a))).exec())
c = out(ask("c", np.ones(a.shape)).exec())
return ok(a + b + c)
== member: a, b
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
== file: a, b
a = out(ask("a", x).exec())
np.save(PLACE + "/t.npy", a)
b = out(ask("b", np.load(PLACE + "/t.npy")).exec())
return ok(b)
== global: a, b
def one(self, x):
    global LAST
    LAST = out(ask("a", x).exec())
    return ok(self.two(x))
def two(self, x):
    return out(ask("b", x + LAST).exec())
== closure: a+b, c
acc = []
def step(m, v):
    acc.append(out(ask(m, v).exec()))
step("a", x)
step("b", x)
step("c", acc[0] + acc[1])
return ok(acc[2])
== random callee: r, r
a = out(ask("r", x).exec())
b = out(ask("r", x).exec())
return ok(a + b)
== stateful callee: cnt, cnt
a = out(ask("cnt", x).exec())
b = out(ask("cnt", x).exec())
return ok(a * 10 + b)
== list append mutated: a+b
buf = x.copy()
a = out(ask("a", buf).exec())
buf += 1
b = out(ask("b", buf).exec())
return ok(a + b)
== error shortcut: a+b
r = ask("a", x).exec()
if r.has_error():
    return pb_utils.InferenceResponse(error=r.error())
s = ask("b", x).exec()
if s.has_error():
    return pb_utils.InferenceResponse(error=s.error())
return ok(out(r) + out(s))
== while: a, a, a
y, n = x, 0
while n < 5 and float(np.abs(y).max()) < 20:
    y = out(ask("a", y).exec())
    n += 1
return ok(y)
== side write: a+b
a = out(ask("a", x).exec())
with open(PLACE + "/log.txt", "a") as f:
    f.write(f"a {a.sum()}\n")
b = out(ask("b", x).exec())
with open(PLACE + "/log.txt", "a") as f:
    f.write(f"b {b.sum()}\n")
return ok(a + b)
== dict comp item: a+b+c
d = {m: out(ask(m, x).exec()) for m in ("a", "b", "c")}
return ok(sum(d.values()))
== sorted first then map: a, b+c
k = int(np.argmax(out(ask("a", x).exec())))
return ok(sum(map(lambda m: out(ask(m, x + k).exec()), ["b", "c"])))
== gather: a+b
r, s = await asyncio.gather(ask("a", x).async_exec(), ask("b", x).async_exec())
return ok(out(r)+out(s))
== gather then dependent: a+b, c
r, s = await asyncio.gather(ask("a", x).async_exec(), ask("b", x).async_exec())
t = await ask("c", out(r)+out(s)).async_exec()
return ok(out(t))
== sequential await: a+b
r = await ask("a", x).async_exec()
s = await ask("b", x).async_exec()
return ok(out(r)+out(s))
== string routing: lang, a
l = out(ask("lang", x).exec())[0]
if l == b"en":
    return ok(out(ask("a", x).exec()))
return ok(out(ask("b", x).exec()))
== string unused: lang+a
l = out(ask("lang", x).exec())[0]
y = out(ask("a", x).exec())
return ok(y if l == b"en" else -y)
== json routing: js, a
j = json.loads(out(ask("js", x).exec())[0])
if j["route"] == "a":
    return ok(out(ask("a", x).exec()))
return ok(out(ask("b", x).exec()))
== json data: js, a
j = json.loads(out(ask("js", x).exec())[0])
return ok(out(ask("a", x * j["scale"]).exec()))
== int routing: cls, b
k = int(out(ask("cls", x).exec())[0])
return ok(out(ask(["a","b","c"][k], x).exec()))
== index into table: cls, a
k = int(out(ask("cls", x).exec())[0])
table = np.arange(10).astype(np.float32)
return ok(out(ask("a", x + table[k]).exec()))
== threshold negative: a, b
a = out(ask("a", x).exec())
if a.min() > -100:
    a = a + out(ask("b", x).exec())
return ok(a)
== caught: a+b
try:
    a = out(ask("a", x).exec())
    if a.max() > 1e3 or a.min() < 0: raise ValueError("odd")
    return ok(out(ask("b", x).exec()) + a)
except Exception as e:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(e)))
== finally: a+b
try:
    a = out(ask("a", x).exec())
finally:
    b = out(ask("b", x).exec())
return ok(a + b)
== fallback on error: fails+b, a
r = ask("fails", x).exec()
if r.has_error():
    r = ask("a", x).exec()
return ok(out(r) + out(ask("b", x).exec()))
== retry: fails, fails, fails, a
for i in range(3):
    r = ask("fails", x).exec()
    if not r.has_error(): return ok(out(r))
return ok(out(ask("a", x).exec()))
== decoupled: dec+a
t = 0
for r in ask("dec", x).exec(decoupled=True):
    if len(r.output_tensors()): t = t + out(r)
return ok(t + out(ask("a", x).exec()))
== decoupled count: dec, a
n = 0
for r in ask("dec", x).exec(decoupled=True):
    if len(r.output_tensors()): n += 1
return ok(out(ask("a", x + n).exec()))
== decoupled each: dec, a+a+a
t = 0
for r in ask("dec", x).exec(decoupled=True):
    if len(r.output_tensors()): t = t + out(ask("a", out(r)).exec())
return ok(t)
== nested: nest+nest
return ok(out(ask("nest", x).exec()) + out(ask("nest", x+1).exec()))
== stateful mem: mem, mem
def one(self, x):
    self.put(x)
    return ok(out(ask("mem", np.array([-1.0])).exec()))
def put(self, x):
    r = ask("mem", x).exec()
    if r.has_error():
        raise RuntimeError("no")
== shared global: writes, reads
return ok(out(ask("writes", x).exec()) + out(ask("reads", x).exec()))
== model writes a file that the callee reads: a, file
a = out(ask("a", x).exec())
np.save(PLACE + "/x.npy", a)
return ok(out(ask("file", x).exec()))
== threads: a+b
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    call = lambda m: out(ask(m, x).exec())
    f = [pool.submit(contextvars.copy_context().run, call, m) for m in ("a", "b")]
    r = [g.result() for g in f]
return ok(r[0] + r[1])
== threads bare: a+b
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    r = list(pool.map(lambda m: out(ask(m, x).exec()), ("a","b")))
return ok(r[0] + r[1])
== random model: ?
a = out(ask("a", x).exec())
return ok(out(ask("b", x + np.random.rand()).exec()) + a)
== random output: a+b
a = out(ask("a", x).exec())
return ok(out(ask("b", x).exec()) + a + np.random.rand())
== counter in self: a+b
def initialize(self, args):
    self.n = 0
def one(self, x):
    self.n += 1
    a = out(ask("a", x + self.n).exec())
    return ok(out(ask("b", x + self.n).exec()) + a)
== state from former answer: a+b
def initialize(self, args):
    self.last = 0
def one(self, x):
    a = out(ask("a", x + self.last).exec())
    b = out(ask("b", x).exec())
    self.last = a
    return ok(a + b)
== file state: ?
p = PLACE + "/st.npy"
old = np.load(p) if os.path.exists(p) else 0
a = out(ask("a", x).exec())
b = out(ask("b", x + old).exec())
np.save(p, a)
return ok(b)
== ctypes: a, b
a = np.ascontiguousarray(out(ask("a", x).exec()))
y = np.empty_like(a)
ctypes.memmove(y.ctypes.data, a.ctypes.data, a.nbytes)
return ok(out(ask("b", y).exec()))
== votes: cls+cls2, a
k = out(ask("cls", x).exec())[0]
l = out(ask("cls2", x).exec())[0]
if k == l:
    return ok(out(ask("a", x).exec()))
return ok(x)
== argmax: a, b
k = int(out(ask("a", x).exec()).argmax())
return ok(out(ask("b", x[k:]).exec()))
== difference: a+a, b
d = out(ask("a", x).exec()) - out(ask("a", x).exec())
return ok(out(ask("b", x + d).exec()))
== time: ?
a = out(ask("a", x).exec())
b = out(ask("b", x + time.time() % 1000).exec())
return ok(a + b)
== one call: a
return ok(out(ask("a", x).exec()))
== unused result: a+b
ask("a", x).exec()
return ok(out(ask("b", x).exec()))
== shape guard: a, b
a = out(ask("a", x).exec())
assert a.shape == (3,)
assert np.isfinite(a).all() and (a >= 0).all() and (a <= 100).all()
b = out(ask("b", a).exec())
return ok(b)
== strict guard: a, b
a = out(ask("a", x).exec())
if not np.array_equal(a, x * 2 + 1): raise ValueError("no")
b = out(ask("b", x).exec())
return ok(b)
== loop with state: a+a+a+a
best = 0.0
for i in range(4):
    best = max(best, float(out(ask("a", x + i).exec()).max()))
    if best > 1e9: break
return ok([best])
== missing then same: a+c, c
a = out(ask("a", x).exec())
if a.sum() > 0:
    a = a + out(ask("c", x).exec())
return ok(a + out(ask("c", x + 1).exec()))
== parameters: a, b
a = out(ask("a", x).exec())
request = pb_utils.InferenceRequest(
    model_name="b", requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", x)],
    parameters={"k": str(a[0])})
return ok(out(request.exec()))
== diamond: a, b+c, a
a = out(ask('a', x).exec())
b = out(ask('b', a).exec())
c = out(ask('c', a).exec())
return ok(out(ask('a', b + c).exec()))
== first and last of ten: a+a+a+a+a+a+a+a+a+a, b
parts = [out(ask('a', x + i).exec()) for i in range(10)]
return ok(out(ask('b', parts[0] + parts[9]).exec()))
== both decide: a+b, c
a, b = out(ask('a', x).exec()), out(ask('b', x).exec())
if a.sum() > 0 and b.sum() > 0:
    return ok(out(ask('c', x).exec()))
return ok(a)
== caught, with a default: a+b
try:
    a = out(ask('a', x).exec())
    if a.max() > 1e4: raise ValueError
except Exception:
    a = x
return ok(a + out(ask('b', x).exec()))
== eight chains: a+a+a+a+a+a+a+a, b+b+b+b+b+b+b+b, c+c+c+c+c+c+c+c
total = 0
for i in range(8):
    y = x + i
    for m in 'abc':
        y = out(ask(m, y).exec())
    total = total + y
return ok(total)
"""


def _graphs() -> Iterator[Graph]:
    for block in _TEXT.split("\n== ")[1:]:
        (head, _, body), is_async = block.partition("\n"), "await " in block
        name, _, order = head.rpartition(": ")
        one = "" if body.startswith("def ") else f"{'async ' * is_async}def one(self, x):\n"
        yield Graph(name, indent(one + indent(body, "    " * bool(one)), "    ") + "\n", order, is_async)


GRAPHS = tuple(_graphs())
