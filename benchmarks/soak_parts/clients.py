"""Clients of soak.py that send correct requests and compare each answer."""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from queue import SimpleQueue
from random import Random
from typing import Any

import numpy as np
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

CLIENTS = 8  # of each kind, correct and hostile
ANSWER_SECONDS = 120.0  # until a request without an answer has failed
PREFIX = f"soak-{os.getpid()}-"  # of this run's files in /dev/shm, where other programs have files too

Array = np.ndarray[Any, Any]


class Client:
    """A client of the endpoint. Each public method of a subclass sends one kind of request."""

    def __init__(self, number: int, is_quick: bool, http_port: int, grpc_port: int, headers: dict[str, str]) -> None:
        self.number, self.is_quick, self.random = number, is_quick, Random(number)
        self.http_port, self.grpc_port, self.headers = http_port, grpc_port, headers

    def kinds(self, over: threading.Event) -> Iterator[str]:
        """Yield the names of this client's share of the methods, and then of any until the load is over."""
        names = [name for name in vars(type(self)) if not name.startswith("_")]
        yield from names[self.number :: CLIENTS]
        while not over.is_set():
            yield self.random.choice(names)

    def post(self, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
        """Send a request over HTTP, by default with the token; return the status and the body of the answer."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with closing(http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=ANSWER_SECONDS)) as connection:
            connection.request("POST", f"/v2/{path}", body, {**self.headers, **named})
            response = connection.getresponse()
            return response.status, response.read()


class CorrectClient(Client):
    """Sends correct requests. Each method returns the answer of a model that doubles its input."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        address, seconds = f"127.0.0.1:{self.http_port}", ANSWER_SECONDS
        self._http = http_client.InferenceServerClient(address, connection_timeout=seconds, network_timeout=seconds)
        self._grpc = grpc_client.InferenceServerClient(f"127.0.0.1:{self.grpc_port}")

    def __enter__(self) -> CorrectClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()
        self._grpc.close()

    def _infer_over_http(self, model: str, tensor: Any, **options: Any) -> Array:
        # A copy of the headers, because tritonclient changes them.
        return self._http.infer(model, [tensor], headers=dict(self.headers), **options).as_numpy("Y")

    def http_binary(self, model: str, array: Array) -> Array:
        """Send a tensor as bytes over HTTP."""
        return self._infer_over_http(model, http_client.InferInput("X", array.shape, "FP32").set_data_from_numpy(array))

    def http_json(self, model: str, array: Array) -> Array:
        """Send a tensor as JSON over HTTP."""
        tensor = http_client.InferInput("X", array.shape, "FP32").set_data_from_numpy(array, binary_data=False)
        output = http_client.InferRequestedOutput("Y", binary_data=False)
        return self._infer_over_http(model, tensor, outputs=[output])

    def http_generate(self, model: str, array: Array) -> Array:
        """Send a tensor to the generate extension."""
        status, body = self.post(f"models/{model}/generate", json.dumps({"X": array.tolist()}).encode())
        if status != 200:
            raise ValueError(f"{status}: {body!r}")
        return np.array(json.loads(body)["Y"])

    def http_shared_memory(self, model: str, array: Array) -> Array:
        """Send a tensor in shared memory."""
        from tritonclient.utils import shared_memory  # cannot be imported on every system

        name, size = f"{PREFIX}{self.random.getrandbits(64)}", array.nbytes
        region = shared_memory.create_shared_memory_region(name, f"/{name}", size)
        with ExitStack() as stack:
            stack.callback(shared_memory.destroy_shared_memory_region, region)
            shared_memory.set_shared_memory_region(region, [array])
            self._http.register_system_shared_memory(name, f"/{name}", size, headers=dict(self.headers))
            stack.callback(self._http.unregister_system_shared_memory, name, headers=dict(self.headers))
            tensor = http_client.InferInput("X", array.shape, "FP32").set_shared_memory(name, size)
            return self._infer_over_http(model, tensor)

    def grpc_call(self, model: str, array: Array) -> Array:
        """Send a tensor over gRPC."""
        tensor = grpc_client.InferInput("X", array.shape, "FP32").set_data_from_numpy(array)
        return self._grpc.infer(model, [tensor], headers=self.headers, client_timeout=ANSWER_SECONDS).as_numpy("Y")

    def grpc_stream(self, _: str, array: Array) -> Array:
        """Send a tensor to a decoupled model, which answers with four parts."""
        tensor = grpc_client.InferInput("X", array.shape, "FP32").set_data_from_numpy(array)
        answers: SimpleQueue[Any] = SimpleQueue()
        self._grpc.start_stream(lambda result, error: answers.put((result, error)), headers=self.headers)
        parts = []
        try:
            self._grpc.async_stream_infer("streams", [tensor])
            for _part in range(4):
                result, error = answers.get(timeout=ANSWER_SECONDS)
                if error is not None:
                    raise error
                parts.append(result.as_numpy("Y"))
        finally:
            self._grpc.stop_stream(cancel_requests=True)
        return np.concatenate(parts)


def send_correct(over: threading.Event, *arguments: Any) -> tuple[Counter[str], list[str]]:
    """Send requests until the load is over; return the counts of right answers, and the failures."""
    counts: Counter[str] = Counter()
    failures = []
    with CorrectClient(*arguments) as client:
        for kind in client.kinds(over):
            array = np.arange(client.random.choice([4, 4000, 200_000]), dtype=np.float32)
            model = client.random.choice(["doubles", "calls"])
            deadline = time.monotonic() + ANSWER_SECONDS
            while (failure := _failure(getattr(client, kind), model, array)) and time.monotonic() < deadline:
                if "try again later" not in failure:
                    break
                counts["tried again"] += 1
                time.sleep(0.1)
            if failure:
                failures.append(f"{kind}, {model}, {len(array):,} elements: {failure}")
            else:
                counts[kind] += 1
    return counts, failures


def _failure(send: Callable[[str, Array], Array], model: str, array: Array) -> str:
    """Send a request; return what is wrong with the answer, or an empty text."""
    try:
        return "" if np.array_equal(send(model, array), 2 * array) else "a wrong answer"
    except Exception as error:  # every failure is counted
        return f"{type(error).__name__}: {error}"
