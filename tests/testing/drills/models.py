"""Callers that do each thing which a drill tells apart, and what they call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bls_notebook as bls

_HEAD = """
import asyncio, logging, os, sys, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

def call(name, x, output="OUT"):
    return pb_utils.InferenceRequest(
        model_name=name, requested_output_names=[output], inputs=[pb_utils.Tensor("IN", x)])

def out(x):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.asarray(x))])

def given(request):
    return pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()

def value(response):
    return pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()

class TritonPythonModel:
    kept = []
    broken = False
    def execute(self, requests):
        return [self.one(given(request)) for request in requests]
"""
_ASYNC = "    async def execute(self, requests):\n        return [await self.one(given(r)) for r in requests]\n"
_STREAM = "    def execute(self, requests):\n        for r in requests:\n            self.one(r)\n"


def _on_error(*lines: str) -> str:
    """Return a caller of `twice` that runs these lines if the response is an error."""
    inside = "".join(f"            {line}\n" for line in lines)
    return (
        '\n    def one(self, x):\n        response = call("twice", x).exec()\n        if response.has_error():\n'
        f"{inside}        return out(value(response))\n"
    )


_RETRY = """
    def one(self, x):
        for _ in range(3):
            response = call("twice", x).exec()
            if not response.has_error():
                return out(value(response))
            {change}
        return pb_utils.InferenceResponse(error=response.error())
"""
CALLERS = {
    "tells": """
    def one(self, x):
        response = call("twice", x).exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        y = value(response)
        if not np.isfinite(y).all() or y.dtype != np.float32 or y.shape != x.shape:
            raise ValueError(
                "twice answered what is no good"
            )
        return out(y)
""",
    "returns": _on_error("return pb_utils.InferenceResponse(error=response.error())"),
    "in_a_line": """
    def one(self, x):
        response = call("twice", x).exec()
        if response.has_error(): raise pb_utils.TritonModelException(response.error().message())
        return out(value(response))
""",
    "vague": _on_error('raise pb_utils.TritonModelException("something failed")'),
    "crashes": _on_error("raise RuntimeError(response.error().text)"),
    "blind": """
    def one(self, x):
        return out(value(call("twice", x).exec()))
""",
    "falls_back": """
    def one(self, x):
        response = call("twice", x).exec()
        return out(x if response.has_error() else value(response))
""",
    "guesses": """
    def one(self, x):
        response = call("twice", x).exec()
        return out(np.array([-7.5], np.float32) if response.has_error() else value(response))
""",
    "tries_again": _RETRY.format(change=""),
    "storms": _RETRY.format(change="").replace("range(3)", "range(50)"),
    "asks_forever": _RETRY.format(change="").replace("range(3)", "iter(int, 1)"),
    "tries_something_else": _RETRY.format(change="x = x + 1"),
    "batches": """
    def one(self, x):
        response = call("twice", x.ravel()).exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return out(value(response).reshape(1, -1))
""",
    "batches_well": """
    def one(self, x):
        response = call("twice", x.ravel()).exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        return out(value(response).reshape(1, -1))
""",
    "keeps_files": _on_error("self.kept.append(os.pipe())", "return pb_utils.InferenceResponse(error=response.error())")
    + """
    def finalize(self):
        for pair in self.kept:
            os.close(pair[0]), os.close(pair[1])
""",
    "blanks": """
    def one(self, x):
        response = call("twice", x).exec()
        return out(np.zeros_like(x) if response.has_error() else value(response))
""",
    "joins": """
    def one(self, x):
        y = np.concatenate([value(call("twice", x).exec()), value(call("twice", np.tile(x, 2)).exec())])
        print("heard", file=sys.stderr)
        logging.warning("heard")
        if y.dtype != np.float32:
            raise ValueError("something is wrong")
        return out(y)
""",
    "asks_another": """
    def one(self, x):
        y = value(call("twice", x).exec())
        return out(y if np.isfinite(y).all() else value(call("other", x).exec()))
""",
    "ignores": """
    def one(self, x):
        call("twice", x).exec()
        return out(x)
""",
    "swallows_nan": """
    def one(self, x):
        return out(np.nan_to_num(value(call("twice", x).exec()), nan=7.0).astype(np.float32))
""",
    "hangs": _on_error("while True:", "    time.sleep(0.01)"),
    "keeps_errors": _on_error(
        'self.kept.append(pb_utils.Tensor("IN", x))', "raise pb_utils.TritonModelException(response.error().message())"
    ),
    "keeps_last": _on_error("self.kept[2:] = []", "self.kept.insert(0, x)", "raise ValueError('twice failed')"),
    "recodes": _on_error("return pb_utils.InferenceResponse(error=pb_utils.TritonError(response.error().message()))"),
    "blames": _on_error(
        "return pb_utils.InferenceResponse("
        "error=pb_utils.TritonError(response.error().message(), pb_utils.TritonError.INVALID_ARG))"
    ),
    "lists": """
    def one(self, x):
        parts = call("counts", x).exec(decoupled=True)
        return out([value(part)[0] for part in parts if not part.has_error() and part.output_tensors()])
""",
    "queues": """
    def one(self, x):
        self.kept.append(x)
        response = call("twice", self.kept[0]).exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        self.kept.pop(0)
        return out(value(response))
""",
    "writes": """
    def one(self, x):
        response = call("twice", x).exec()
        text = response.error().message() if response.has_error() else str(value(response))
        return out(np.array([text.encode()], object))
""",
    "batches_mixed": """
    async def execute(self, requests):
        answers = await asyncio.gather(*map(self.ask, requests))
        return sorted(answers, key=lambda response: response.has_error())
    async def ask(self, request):
        response = await call("twice", given(request).ravel()).async_exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        return out(value(response).reshape(1, -1))
""",
    "keeps_threads": """
    def one(self, x):
        response = call("twice", x).exec()
        if response.has_error():
            threading.Thread(target=self.stopped.wait).start()
            return pb_utils.InferenceResponse(error=response.error())
        return out(value(response))
    stopped = threading.Event()
    def finalize(self):
        self.stopped.set()
""",
    "stays_broken": """
    def one(self, x):
        response = call("twice", x).exec()
        self.broken = self.broken or response.has_error()
        if self.broken:
            raise pb_utils.TritonModelException("twice has failed once")
        return out(value(response))
""",
    "limited": _ASYNC
    + """
    async def one(self, x):
        try:
            response = await asyncio.wait_for(call("twice", x).async_exec(), 1000)
        except asyncio.TimeoutError:
            raise pb_utils.TritonModelException("twice takes too long") from None
        return out(value(response))
""",
    "leaves_early": _ASYNC
    + """
    async def one(self, x):
        return out(sum(await asyncio.gather(self.ask("twice", x), self.ask("lags", x + 1))))
    async def ask(self, name, x):
        response = await call(name, x).async_exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return value(response)
""",
    "awaits": _ASYNC
    + """
    async def one(self, x):
        return out(value(await call("twice", x).async_exec()))
""",
    "races": _ASYNC
    + """
    async def one(self, x):
        first, second = (asyncio.ensure_future(call(name, x).async_exec()) for name in ("twice", "other"))
        await second
        await asyncio.wait([first], timeout=0.2)
        return out(value(await (first if first.done() else second)))
""",
    "two": """
    def one(self, x):
        first, second = call("twice", x).exec(), call("other", x).exec()
        if first.has_error() and second.has_error():
            return [][0]
        return out(value(second if first.has_error() else first))
""",
    "adds": """
    def one(self, x):
        total = np.zeros(1, np.float32)
        for response in call("counts", x).exec(decoupled=True):
            if response.has_error():
                raise pb_utils.TritonModelException(response.error().message())
            if response.output_tensors():
                total += value(response)
        return out(total)
""",
    "forgets_flag": _STREAM
    + """
    def one(self, request):
        sender = request.get_response_sender()
        response = call("twice", given(request)).exec()
        if response.has_error():
            return
        sender.send(out(value(response)), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
    "forgets_flag_after": _STREAM
    + """
    def one(self, request):
        sender = request.get_response_sender()
        response = call("twice", given(request)).exec()
        if response.has_error():
            sender.send(pb_utils.InferenceResponse(error=response.error()))
            return
        sender.send(out(value(response)), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
    "varies": """
    def one(self, x):
        return out(value(call("twice", x).exec()) + np.random.rand(*x.shape).astype(np.float32))
""",
}
CALLEES = {
    "twice": "    def one(self, x):\n        return out(x * 2)\n",
    "other": "    def one(self, x):\n        return out(x * 3)\n",
    "lags": "    def one(self, x):\n        time.sleep(0.02)\n        return out(x * 3)\n",
    "counts": _STREAM
    + """
    def one(self, request):
        sender = request.get_response_sender()
        for i in range(4):
            sender.send(out(given(request) + i))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
}
_BATCHING = {"max_batch_size": 8, "dynamic_batching": {"max_queue_delay_microseconds": 50_000}}
DECOUPLED = ("counts", "forgets_flag", "forgets_flag_after")
REQUEST: Mapping[str, Any] = {"IN": [1.0]}


def define(repository: bls.ModelRepository, *names: str) -> None:
    """Define some of the models."""
    for name in names:
        tensor = {"data_type": "TYPE_FP32", "dims": [-1]}
        config: dict[str, Any] = {
            "max_batch_size": 0,
            "input": [{"name": "IN", **tensor}],
            "output": [{"name": "OUT", **tensor, **({"data_type": "TYPE_STRING"} if name == "writes" else {})}],
            **(_BATCHING if "batches" in name else {}),
            "model_transaction_policy": {"decoupled": name in DECOUPLED},
        }
        repository.define(name, _HEAD + {**CALLERS, **CALLEES}[name], config)
