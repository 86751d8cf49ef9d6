"""Triton's generate extension (`/generate`, `/generate_stream`): requests and responses as plain JSON objects.

A member named like an input is that input, also within ``parameters``; other members are parameters of the
request. Outputs of the model are members of the response.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Container
from contextlib import aclosing
from functools import partial
from math import prod
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bls_notebook.engine import LoadedModel, TensorSpec
from bls_notebook.network.kserve import json_codec
from bls_notebook.network.kserve.errors import ProtocolError, refuse
from bls_notebook.network.kserve.request import DecodedRequest
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


def decode_generate(model: LoadedModel, version: int, body: bytes | bytearray) -> DecodedRequest:
    """Return the request in a body; ProtocolError if it is malformed."""
    if not body:
        refuse("failed to parse the request JSON buffer: The document is empty. at 0")
    inputs = model.spec.inputs
    document = json_codec.parsed(body, partial(_object, inputs))
    if not isinstance(document, dict):
        refuse("attempt to get members for non-object")
    call = DecodedRequest(model, version, json_codec.member(document, "id", str, ""))
    parameters: dict[str, Any] = {}
    nested = document.pop("parameters", {}) if "parameters" not in inputs else {}
    if not isinstance(nested, dict):
        refuse("Expected JSON object for keyword: 'parameters'")
    for members, context in ((document, ""), (nested, "Converting keyword: 'parameters': ")):
        try:
            for name, value in members.items():
                if name in inputs:
                    call.add_input(_input(inputs[name], value))
                else:
                    parameters[name] = value
            json_codec.take_parameters(call, parameters)
        except ProtocolError as error:
            raise ProtocolError(context + error.message) from None
    return call


def _object(inputs: Container[str], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; ProtocolError if an input is in it twice."""
    for name, times in Counter(name for name, _ in pairs).items():
        if times > 1 and name in inputs:
            refuse(f"input '{name}' already exists in request")
    return dict(pairs)


def generating(call: DecodedRequest, response: InferenceResponse) -> tuple[Any, ...]:
    """Return the arguments of `Admission.work` for the JSON of a response."""
    return sum(tensor._array.nbytes for tensor in response._outputs), _generated, call, response


def _generated(call: DecodedRequest, response: InferenceResponse) -> bytes:
    """Return the JSON object of a response: an output with one element is a value, others are lists."""
    members = {"id": call.request_id, "model_name": call.model.name, "model_version": str(call.model.version)}
    texts = {tensor._name: _output(tensor) for tensor in response._outputs}
    texts |= {name: json_codec.written(text) for name, text in members.items() if text}
    return b"{%b}" % b",".join(json_codec.written(name) + b":" + text for name, text in sorted(texts.items()))


def _input(spec: TensorSpec, value: Any) -> Tensor:
    """Return an input from a value or a list of values, which fill its innermost free dimension."""
    values = value if isinstance(value, list) else [value]
    fixed = prod(size for size in spec.shape if size != -1)
    left, rest = divmod(len(values), fixed) if fixed else (0, len(values))
    shape = []
    for size in reversed(spec.shape):
        shape.append(left if size == -1 else size)
        left = 1 if size == -1 else left
    if rest or left != 1:
        refuse(f"The schema can not convert input '{spec.name}' to tensor with proper shape")
    return json_codec.input_tensor_of_values(spec.name, spec.datatype, shape[::-1], json_codec.flattened(values))


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
            await until_disconnect(Request(scope, receive), asyncio.ensure_future(self._send_all(send, errors)))

    async def _send_all(self, send: Send, errors: list[BaseException]) -> None:
        began = False

        async def start(status: int) -> None:
            headers = [(b"content-type", _EVENTS.encode()), (b"cache-control", b"no-cache")]
            await send({"type": "http.response.start", "status": status, "headers": headers})

        async with aclosing(responses(self._call)) as stream:
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


async def only_response(call: DecodedRequest) -> InferenceResponse:
    """Return the single response to a request; ProtocolError if there are none or several."""
    received = []
    async with aclosing(responses(call)) as stream:
        async for response in stream:
            received.append(response)
            if len(received) > 1:
                break
    return received[0] if len(received) == 1 else refuse(_ONE_RESPONSE)


async def responses(call: DecodedRequest) -> AsyncGenerator[InferenceResponse]:
    """Send a request and yield its responses, except an empty final one. Closing early cancels the request."""
    stream = await send_request(call, stream=True)
    final = False
    try:
        while not final:
            response, final = await stream.next_response_async()
            if not (final and is_empty(response)):
                yield response
    except StreamEnded:
        final = True
    finally:
        if not final:
            stream.cancel()
            stream.discard()
