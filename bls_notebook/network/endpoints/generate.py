"""Triton's generate extension (`/generate`, `/generate_stream`): requests and responses as plain JSON objects.

A member named like an input is that input, also within ``parameters``; other members are parameters for the model,
``sequence_id`` and the like included. Outputs of the model are members of the response.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from math import prod
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bls_notebook.engine import LoadedModel, TensorSpec
from bls_notebook.network.kserve import json_codec
from bls_notebook.network.kserve.errors import ProtocolError, refuse
from bls_notebook.network.kserve.request import DecodedRequest, few
from bls_notebook.pb_utils import InferenceResponse, Tensor
from bls_notebook.pb_utils.response import StreamEnded

from .admission import Admission, CountedRequest
from .http_server import until_disconnect
from .served_models import is_empty, without_error
from .served_models import send as send_request

_EVENTS = "text/event-stream; charset=utf-8"
_ONE_RESPONSE = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates "
    "various number of responses"
)


def decode_generate(model: LoadedModel, version: int, body: bytes | bytearray, most: int) -> DecodedRequest:
    """Return the request in a body; ProtocolError if it is malformed. `most` limits the bytes of its inputs."""
    if not body:
        refuse("failed to parse the request JSON buffer: The document is empty. at 0")
    json_codec.check_size(len(body), most)
    document = json_codec.parsed(body, _Members)
    if not isinstance(document, _Members):
        refuse("attempt to get members for non-object")
    call = DecodedRequest(model, version, json_codec.member(document, "id", str, ""))
    _add_members(call, document, most)
    return call


class _Members(dict[str, Any]):
    """A JSON object that knows its repeated members: as on Triton, each has the value of the first one."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(reversed(pairs))
        self.names = [name for name, _ in pairs]


def _add_members(call: DecodedRequest, document: _Members, most: int, nested: bool = False) -> None:
    """Add the inputs and parameters that are members of an object."""
    inputs, size = call.model.spec.inputs, 0
    for name in few("members", document.names):
        value = document[name]
        if name == "parameters" and not nested:
            if name in inputs:
                refuse(f"Keyword '{name}' for nested schema also given as input tensor name")
            if not isinstance(value, _Members):
                refuse(f"Expected JSON object for keyword: '{name}'")
            try:
                _add_members(call, value, most, nested=True)
            except ProtocolError as error:
                raise ProtocolError(f"Converting keyword: '{name}': {error.message}") from None
        elif name in inputs:
            tensor, added = _input(inputs[name], value, size, most)
            size += added
            call.add_input(tensor)
        else:
            json_codec.add_parameter(call, name, value)


def generating(call: DecodedRequest, response: InferenceResponse) -> tuple[Any, ...]:
    """Return the arguments of `Admission.work` for the JSON of a response."""
    return sum(tensor._array.nbytes for tensor in response._outputs), _generated, call, response


def _generated(call: DecodedRequest, response: InferenceResponse) -> bytes:
    """Return the JSON object of a response: an output with one element is a value, others are lists."""
    members = {"id": call.request_id, "model_name": call.model.name, "model_version": str(call.model.version)}
    texts = {tensor._name: _output(tensor) for tensor in response._outputs}
    texts |= {name: json_codec.written(text) for name, text in members.items() if text}
    return b"{%b}" % b",".join(json_codec.written(name) + b":" + text for name, text in sorted(texts.items()))


def _input(spec: TensorSpec, value: Any, before: int, most: int) -> tuple[Tensor, int]:
    """Return an input from a value or a list of values, which fill its innermost free dimension, and its bytes.

    ProtocolError if it makes the inputs `before` it larger than `most` bytes.
    """
    values = value if isinstance(value, list) else [value]
    if not values:  # Triton adds an input without a shape, which it then refuses
        return Tensor._of(spec.name, np.zeros((), np.int8), spec.datatype), 0
    flat = json_codec.flattened(values, spec.datatype)
    size = json_codec.serialized_size(spec.datatype, len(values), flat)
    if before + size > most:
        refuse(
            f"request size of {before} bytes with input '{spec.name}' of size {size} bytes exceeds the maximum allowed "
            f"input size of {most}. {json_codec.INCREASE}"
        )
    fixed = prod(size for size in spec.shape if size != -1)
    left, rest = divmod(len(values), fixed) if fixed else (0, len(values))
    shape = []
    for size in reversed(spec.shape):
        shape.append(left if size == -1 else size)
        left = 1 if size == -1 else left
    if rest or left != 1:
        refuse(f"The schema can not convert input '{spec.name}' to tensor with proper shape")
    return json_codec.input_tensor_of_values(spec.name, spec.datatype, shape[::-1], flat), size


def _output(tensor: Tensor) -> bytes:
    values = json_codec.output_values(tensor)
    return values[1:-1] if prod(tensor._array.shape) == 1 else values


class Events(Response):
    """The responses to a request as server-sent events; the first response decides the HTTP status."""

    def __init__(self, call: DecodedRequest, admission: Admission) -> None:
        super().__init__()
        self._call, self._admission = call, admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with CountedRequest(self._admission, self._call.model.name) as errors:
            begun = asyncio.Event()
            work = asyncio.ensure_future(self._send_all(send, errors, begun))
            await until_disconnect(Request(scope, receive), work, begun)

    async def _send_all(self, send: Send, errors: list[BaseException], begun: asyncio.Event) -> None:
        began = False

        async def start(status: int) -> None:
            headers = [(b"content-type", _EVENTS.encode()), (b"cache-control", b"no-cache")]
            await send({"type": "http.response.start", "status": status, "headers": headers})

        async with aclosing(responses(self._call, begun)) as stream:
            async for response in stream:
                try:
                    document = await self._admission.work(*generating(self._call, without_error(response)))
                    status = 200
                except ProtocolError as error:
                    if error.refused and not began:
                        raise
                    document, status = json_codec.written({"error": error.message}), 400
                    errors.append(error)
                if not began:
                    await start(status)
                began = True
                await send({"type": "http.response.body", "body": b"data: " + document + b"\n\n", "more_body": True})
                await asyncio.sleep(0)  # neither `send` nor a response that has arrived releases the loop
        if not began:
            await start(200)
        await send({"type": "http.response.body", "body": b""})


async def only_response(call: DecodedRequest, begun: asyncio.Event) -> InferenceResponse:
    """Return the single response to a request; ProtocolError if there are none or several."""
    received = []
    async with aclosing(responses(call, begun)) as stream:
        async for response in stream:
            received.append(response)
            if len(received) > 1:
                break
    return received[0] if len(received) == 1 else refuse(_ONE_RESPONSE)


async def responses(call: DecodedRequest, begun: asyncio.Event) -> AsyncGenerator[InferenceResponse]:
    """Send a request and yield its responses, except an empty final one. Closing early cancels the request.

    `begun` is set when the first response arrives.
    """
    stream = await send_request(call, stream=True)
    final = False
    try:
        while not final:
            response, final = await stream.next_response_async()
            begun.set()
            if not (final and is_empty(response)):
                yield response
    except StreamEnded:
        final = True
    finally:
        if not final:
            stream.cancel()
            stream.discard()
