"""The four clients of tritonclient behind one face, for tests that are about what a server answers."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
import tritonclient.utils

KINDS: Mapping[str, tuple[ModuleType, ModuleType]] = {
    "http": (tritonclient.http, tritonclient.http),
    "http-aio": (tritonclient.http, tritonclient.http.aio),
    "grpc": (tritonclient.grpc, tritonclient.grpc),
    "grpc-aio": (tritonclient.grpc, tritonclient.grpc.aio),
}
"""By name: where its tensors come from, and where the client."""

Runner = Callable[[Coroutine[Any, Any, Any]], Any]


class Client:
    def __init__(self, kind: str, http: str, grpc: str, run: Runner) -> None:
        self.kind = kind
        self.http = kind.startswith("http")
        self.tensors, module = KINDS[kind]
        self.run = run

        async def opened() -> Any:  # the asyncio halves want a running loop
            return module.InferenceServerClient(http if self.http else grpc)

        self.raw: Any = run(opened())

    def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        method = getattr(self.raw, name)
        if "as_json" in inspect.signature(method).parameters:
            options["as_json"] = True
        found = method(*arguments, **options)
        return self.run(found) if asyncio.iscoroutine(found) else found

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return functools.partial(self.call, name)

    def input(self, name: str, array: Any) -> Any:
        array = np.asarray(array)
        made = self.tensors.InferInput(name, list(array.shape), datatype(array))
        made.set_data_from_numpy(array)
        return made

    def output(self, name: str, **options: Any) -> Any:
        return self.tensors.InferRequestedOutput(name, **options)

    def infer(self, model: str, inputs: Mapping[str, Any], **options: Any) -> Any:
        made = [self.input(name, array) for name, array in inputs.items()]
        return self.call("infer", model, made, **options)

    def close(self) -> None:
        self.call("close")


def datatype(array: np.ndarray) -> str:
    return "BF16" if array.dtype == ml_dtypes.bfloat16 else tritonclient.utils.np_to_triton_dtype(array.dtype)


def stream(client: Client, *requests: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    made = [
        {**each, "inputs": [client.input(name, array) for name, array in each["inputs"].items()]} for each in requests
    ]
    if client.kind == "grpc-aio":
        return list(client.run(_collected(client.raw, made)))
    found: list[tuple[Any, Any]] = []
    client.raw.start_stream(lambda result, error: found.append((result, error)))
    for each in made:
        client.raw.async_stream_infer(**each)
    client.raw.stop_stream()  # waits for what is under way
    return found


async def _collected(raw: Any, requests: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
    async def each() -> AsyncIterator[dict[str, Any]]:
        for request in requests:
            yield request

    return [answer async for answer in raw.stream_infer(each())]
