"""Small models of which it is known why async helps, or does not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bls_notebook import ModelRepository

__all__ = ["CONFIG", "HEAD", "WORKLOADS", "Workload", "define"]

CONFIG = """
input [{ name: "IN" data_type: TYPE_FP32 dims: [1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [1] }]
"""

HEAD = """
import asyncio, time
import numpy as np
import triton_python_backend_utils as pb_utils

def answer(requests):
    return [
        pb_utils.InferenceResponse(
            [pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(request, "IN").as_numpy())]
        )
        for request in requests
    ]

"""

_SLEEPER = """
class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.03)
        return answer(requests)
"""

_BURNER = """
class TritonPythonModel:
    def execute(self, requests):
        total = 0
        for i in range(200_000):
            total += i * i
        return answer(requests)
"""

_NUMPY = """
class TritonPythonModel:
    def initialize(self, args):
        self.values = np.linspace(0, 9, 20_000)
        self.out = np.empty_like(self.values)

    def execute(self, requests):
        for _ in range(80):
            np.sin(self.values, out=self.out)  # lets go of the lock meanwhile
        return answer(requests)
"""

_COMPUTES_AND_WAITS = """
class TritonPythonModel:
    def initialize(self, args):
        self.values = np.linspace(0, 9, 20_000)
        self.out = np.empty_like(self.values)

    def execute(self, requests):
        end = time.thread_time() + 0.005
        while time.thread_time() < end:
            np.sin(self.values, out=self.out)
        time.sleep(0.015)
        return answer(requests)
"""

_SYNC_IN_ASYNC = """
class TritonPythonModel:
    async def execute(self, requests):
        for request in requests:
            for _ in range(3):
                tensor = pb_utils.get_input_tensor_by_name(request, "IN")
                pb_utils.InferenceRequest(
                    model_name="callee", inputs=[tensor], requested_output_names=["OUT"]
                ).exec()
        return answer(requests)
"""

_BLOCKING = """
class TritonPythonModel:
    async def execute(self, requests):
        for request in requests:
            time.sleep(0.02)
            sender = request.get_response_sender()
            sender.send(answer([request])[0], flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

_ONE_AT_A_TIME = """
class TritonPythonModel:
    async def execute(self, requests):
        await asyncio.sleep(0.02)
        return answer(requests)
"""

_LITTLE = """
class TritonPythonModel:
    def execute(self, requests):
        return answer(requests)
"""

# What instances share outside their modules: a connection, a file, a device.
_SHARED = """
import queue, tempfile, threading
def shared(make):
    return vars(threading).setdefault("_shared_by_a_workload", {}).setdefault(make, eval(make))

class TritonPythonModel:
    def initialize(self, args):
        self.its = shared(%r)

    def execute(self, requests):
        %s
        return answer(requests)
"""

_LOCKED = _SHARED % ("threading.Lock()", "with self.its: time.sleep(0.02)")
_LOCKED_PART = _SHARED % ("threading.Lock()", "time.sleep(0.02)\n        with self.its: time.sleep(0.02)")
_SEMAPHORE = _SHARED % ("threading.Semaphore(2)", "with self.its: time.sleep(0.03)")
_POOL = _SHARED % (
    "[box := queue.Queue(), box.put('a connection')][0]",
    "it = self.its.get(); time.sleep(0.02); self.its.put(it)",
)
_EXECUTOR = _SHARED % (
    "__import__('concurrent.futures').futures.ThreadPoolExecutor(1)",
    "self.its.submit(time.sleep, 0.02).result()",
)
_RATE_LIMITED = _SHARED % (
    "[threading.Lock(), 0.0]",
    """with self.its[0]:
            at = self.its[1] = max(time.monotonic(), self.its[1] + 0.025)
        time.sleep(max(0, at - time.monotonic()) + 0.01)""",
)

_FILE_LOCK = """
import fcntl, os, tempfile
class TritonPythonModel:
    def initialize(self, args):
        self.file = open(os.path.join(tempfile.gettempdir(), f"a-workload-{os.getpid()}"), "w")

    def execute(self, requests):
        fcntl.flock(self.file, fcntl.LOCK_EX)
        time.sleep(0.02)
        fcntl.flock(self.file, fcntl.LOCK_UN)
        return answer(requests)
"""

_SQLITE = """
import os, sqlite3, tempfile
class TritonPythonModel:
    def initialize(self, args):
        path = os.path.join(tempfile.gettempdir(), f"a-workload-{os.getpid()}.sqlite")
        self.db = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        self.db.execute("create table if not exists t (x)")

    def execute(self, requests):
        self.db.execute("begin immediate")
        time.sleep(0.02)
        self.db.execute("commit")
        return answer(requests)
"""

_HTTP = """
import http.client, http.server, threading
class Slow(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(0.02)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *about):
        pass

class TritonPythonModel:
    def initialize(self, args):
        shared = vars(threading).setdefault("_server_of_a_workload", [])
        if not shared:
            shared.append(http.server.HTTPServer(("127.0.0.1", 0), Slow))  # serves one at a time
            threading.Thread(target=shared[0].serve_forever, daemon=True).start()
        self.address = shared[0].server_address

    def execute(self, requests):
        connection = http.client.HTTPConnection(*self.address)
        connection.request("GET", "/")
        connection.getresponse().read()
        connection.close()
        return answer(requests)
"""

_COROUTINE = """
class TritonPythonModel:
    def initialize(self, args):
        self.lock = asyncio.Lock()

    async def execute(self, requests):
        for request in requests:
            %s
            sender = request.get_response_sender()
            sender.send(answer([request])[0], flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

_ONE_BY_ONE = """
class TritonPythonModel:
    async def execute(self, requests):
        return [await self.one(request) for request in requests]

    async def one(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "IN")
        call = pb_utils.InferenceRequest(model_name="callee", inputs=[tensor], requested_output_names=["OUT"])
        response = await call.async_exec()
        return pb_utils.InferenceResponse(response.output_tensors())
"""

_OWN_POOL = """
from concurrent.futures import ThreadPoolExecutor
class TritonPythonModel:
    def initialize(self, args):
        self.pool = ThreadPoolExecutor(2)

    def execute(self, requests):
        for request in requests:
            self.pool.submit(self.work, answer([request])[0], request.get_response_sender())

    def work(self, response, sender):
        time.sleep(0.03)
        sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

_HASH = """
import hashlib
class TritonPythonModel:
    def execute(self, requests):
        hashlib.sha256(b"x" * 6_000_000).digest()  # releases the lock
        return answer(requests)
"""

_PREP = """
class TritonPythonModel:
    def execute(self, requests):
        ends = time.thread_time() + 0.02
        while time.thread_time() < ends:
            pass
        return answer(requests)
"""

_CHAIN = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "IN")
            for name in %r:
                pb_utils.InferenceRequest(
                    model_name=name, inputs=[tensor], requested_output_names=["OUT"]
                ).exec()
        return answer(requests)
"""
_BURNING_CHAIN = _CHAIN % (("first", "second"),)

_ENSEMBLE = """
platform: "ensemble"
ensemble_scheduling { step [
    { model_name: "first" model_version: -1
      input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "between" } },
    { model_name: "second" model_version: -1
      input_map { key: "IN" value: "between" } output_map { key: "OUT" value: "OUT" } } ] }
"""
_CACHED = "response_cache { enable: true }\n"
_DECOUPLED = "model_transaction_policy { decoupled: true }\n"


def _count(instances: int) -> str:
    return f"instance_group [{{ count: {instances} kind: KIND_CPU }}]\n"


@dataclass(frozen=True)
class Workload:
    """Models by name, the last one to be asked; ``cause`` has the causes that are true, in words."""

    name: str
    cause: str
    models: dict[str, tuple[str, str]]

    @property
    def model(self) -> str:
        return list(self.models)[-1]

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        batched = "max_batch_size" in self.models[self.model][1]
        return {"IN": np.ones((1, 1) if batched else 1, np.float32)}


WORKLOADS = (
    Workload("sleeps, 1 instance", "queue", {"sleeper": (_SLEEPER, _count(1))}),
    Workload("sleeps, 2 instances", "queue", {"sleeper": (_SLEEPER, _count(2))}),
    Workload("sleeps, 8 instances", "helped", {"sleeper": (_SLEEPER, _count(8))}),
    Workload("pure Python, 1 instance", "gil", {"burner": (_BURNER, _count(1))}),
    Workload("pure Python, 4 instances", "gil", {"burner": (_BURNER, _count(4))}),
    Workload("NumPy, 1 instance", "queue", {"sine": (_NUMPY, _count(1))}),
    Workload("NumPy, 2 instances", "helped cores", {"sine": (_NUMPY, _count(2))}),
    Workload("NumPy, then waits, 1 instance", "queue", {"both": (_COMPUTES_AND_WAITS, _count(1))}),
    Workload("NumPy, then waits, 8 instances", "helped partly", {"both": (_COMPUTES_AND_WAITS, _count(8))}),
    Workload(
        "batcher",
        "batched",
        {"batcher": (_SLEEPER, "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 3000 }\n")},
    ),
    Workload(
        "exec in async execute", "sync_exec", {"callee": (_SLEEPER, _count(24)), "caller": (_SYNC_IN_ASYNC, _count(1))}
    ),
    Workload(
        "blocking coroutine",
        "blocking",
        {"blocks": (_BLOCKING, _count(1) + "model_transaction_policy { decoupled: true }\n")},
    ),
    Workload("async, one at a time", "one_at_a_time", {"awaits": (_ONE_AT_A_TIME, _count(1))}),
    Workload("little work", "little", {"little": (_LITTLE, _count(1))}),
    Workload("a lock that instances share", "contention", {"locked": (_LOCKED, _count(4))}),
    Workload("half of the time in a lock", "contention", {"locked": (_LOCKED_PART, _count(8))}),
    Workload("a semaphore of two", "contention", {"two": (_SEMAPHORE, _count(8))}),
    Workload("a pool of one connection", "contention", {"pool": (_POOL, _count(4))}),
    Workload("a thread that all share", "contention", {"thread": (_EXECUTOR, _count(4))}),
    Workload("a remote of limited rate", "contention", {"limited": (_RATE_LIMITED, _count(8))}),
    Workload("a server of one at a time", "contention", {"http": (_HTTP, _count(4))}),
    Workload("a file lock", "contention", {"file": (_FILE_LOCK, _count(4))}),
    Workload("a database that is written", "contention", {"sqlite": (_SQLITE, _count(4))}),
    Workload(
        "a callee that shares a lock",
        "contention",
        {"locked": (_LOCKED, _count(4)), "caller": (_CHAIN % (("locked",),), _count(8))},
    ),
    Workload("tried: one instance with a lock", "contention", {"locked": (_LOCKED, _count(1))}),
    Workload(
        "a batch, one by one",
        "batch_in_turn",
        {
            "callee": (_SLEEPER, "max_batch_size: 8\n" + _count(8)),
            "batches": (_ONE_BY_ONE, "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 3000 }\n"),
        },
    ),
    Workload("a pool of an instance", "shared_instance", {"pool": (_OWN_POOL, _count(1) + _DECOUPLED)}),
    Workload("hashes, 4 instances", "helped cores queue", {"hash": (_HASH, _count(4))}),
    Workload(
        "two thirds in Python",
        "gil",
        {
            "prep": (_PREP, _count(1)),
            "waits": (_SLEEPER.replace("0.03", "0.01"), _count(1)),
            "chained": (_CHAIN % (("prep", "waits"),), _count(1)),
        },
    ),
    Workload(
        "lock of coroutines",
        "shared_instance",
        {"awaits": (_COROUTINE % "async with self.lock: await asyncio.sleep(0.02)", _count(1) + _DECOUPLED)},
    ),
    Workload(
        "coroutines that block and wait",
        "blocking",
        {"blocks": (_COROUTINE % "time.sleep(0.015); await asyncio.sleep(0.01)", _count(1) + _DECOUPLED)},
    ),
    Workload("response cache", "cached", {"cached": (_SLEEPER, _CACHED)}),
    Workload(
        "a callee from the cache",
        "cached",
        {"cached": (_SLEEPER, _CACHED), "caller": (_CHAIN % (("cached",),), _count(1))},
    ),
    Workload(
        "an ensemble of cached steps",
        "cached",
        {"first": (_SLEEPER, _CACHED), "second": (_SLEEPER, _CACHED), "both": ("", _ENSEMBLE)},
    ),
    Workload(
        "one step from the cache",
        "queue",
        {"first": (_SLEEPER, _CACHED), "second": (_SLEEPER, _count(1)), "both": ("", _ENSEMBLE)},
    ),
    Workload(
        "a chain of pure Python",
        "gil",
        {"first": (_BURNER, _count(1)), "second": (_BURNER, _count(1)), "chained": (_BURNING_CHAIN, _count(2))},
    ),
)


def define(repo: ModelRepository, workload: Workload) -> None:
    """Define the models of a workload."""
    for name, (source, config) in workload.models.items():
        repo.define(name, HEAD + source if source else "", CONFIG + config)
