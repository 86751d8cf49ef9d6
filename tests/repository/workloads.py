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

_LOCKED = """
import threading
class TritonPythonModel:
    def initialize(self, args):
        # What instances share outside their modules: a connection, a file, a device.
        self.lock = vars(threading).setdefault("_shared_by_a_workload", threading.Lock())

    def execute(self, requests):
        with self.lock:
            time.sleep(0.02)
        return answer(requests)
"""

_BURNING_CHAIN = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "IN")
            for name in ("first", "second"):
                pb_utils.InferenceRequest(
                    model_name=name, inputs=[tensor], requested_output_names=["OUT"]
                ).exec()
        return answer(requests)
"""


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
    Workload(
        "batcher",
        "batched",
        {
            "batcher": (
                _SLEEPER,
                "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 3000 }\n",
            )
        },
    ),
    Workload(
        "exec in async execute",
        "sync_exec",
        {"callee": (_SLEEPER, _count(24)), "caller": (_SYNC_IN_ASYNC, _count(1))},
    ),
    Workload(
        "blocking coroutine",
        "blocking",
        {"blocks": (_BLOCKING, _count(1) + "model_transaction_policy { decoupled: true }\n")},
    ),
    Workload("async, one at a time", "one_at_a_time", {"awaits": (_ONE_AT_A_TIME, _count(1))}),
    Workload("little work", "little", {"little": (_LITTLE, _count(1))}),
    Workload("a lock that instances share", "contention", {"locked": (_LOCKED, _count(4))}),
    Workload("response cache", "cached", {"cached": (_SLEEPER, "response_cache { enable: true }\n")}),
    Workload(
        "a chain of pure Python",
        "gil",
        {
            "first": (_BURNER, _count(1)),
            "second": (_BURNER, _count(1)),
            "chained": (_BURNING_CHAIN, _count(2)),
        },
    ),
)


def define(repo: ModelRepository, workload: Workload) -> None:
    """Define the models of a workload."""
    for name, (source, config) in workload.models.items():
        repo.define(name, HEAD + source, CONFIG + config)
