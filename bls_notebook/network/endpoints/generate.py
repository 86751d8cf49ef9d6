"""`/generate` and `/generate_stream`: a request and its responses as plain JSON objects.

A member with the name of an input is that input, also within ``parameters``; the others are parameters of the
request. Outputs of the model are members of the response.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from math import prod
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.spec import TensorSpec
from bls_notebook.network.kserve.errors import ProtocolError, refuse
from bls_notebook.network.kserve.json_codec import (
    flattened,
    input_tensor_of_values,
    member,
    output_values,
    parsed,
    take_parameters,
    written,
)
from bls_notebook.network.kserve.request import DecodedRequest
from bls_notebook.pb_utils import InferenceResponse, Tensor
from bls_notebook.pb_utils.response import StreamEnded

from .admission import Admission
from .http_server import until_disconnect
from .served_models import is_empty, without_error
from .served_models import send as send_request

_EVENTS = "text/event-stream; charset=utf-8"
_ONE_RESPONSE = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates "
    "various number of responses"
)


def decode_generate(model: LoadedModel, version: int, body: bytes | bytearray) -> DecodedRequest:
    """Decode a request."""
    if not body:
        refuse("failed to parse the request JSON buffer: The document is empty. at 0")
    found = parsed(body)
    if not isinstance(found, dict):
        refuse("attempt to get members for non-object")
    call = DecodedRequest(model, version, member(found, "id", str, ""))
    own: dict[str, Any] = {}
    nested = found.pop("parameters", {}) if "parameters" not in model.spec.inputs else {}
    if not isinstance(nested, dict):
        refuse("Expected JSON object for keyword: 'parameters'")
    for name, value in (*found.items(), *nested.items()):
        wanted = model.spec.inputs.get(name)
        if wanted is not None:
            call.inputs.append(_input(wanted, value))
        else:
            own[name] = value
    take_parameters(call, own)
    return call


def generated(call: DecodedRequest, response: InferenceResponse) -> dict[str, Any]:
    """Return a response: outputs with one element as a value, others as a list."""
    answer: dict[str, Any] = {tensor._name: _output(tensor) for tensor in response._outputs}
    answer |= {"model_name": call.model.name, "model_version": str(call.model.version)}
    if call.request_id:
        answer["id"] = call.request_id
    return dict(sorted(answer.items()))


def _input(wanted: TensorSpec, value: Any) -> Tensor:
    """Return an input from a value or a list of values: the innermost free size takes them all."""
    given = value if isinstance(value, list) else [value]
    fixed = prod(size for size in wanted.shape if size != -1)
    left, rest = divmod(len(given), fixed) if fixed else (0, len(given))
    shape = []
    for size in reversed(wanted.shape):
        shape.append(left if size == -1 else size)
        left = 1 if size == -1 else left
    if rest or left != 1:
        refuse(f"The schema can not convert input '{wanted.name}' to tensor with proper shape")
    return input_tensor_of_values(wanted.name, wanted.datatype, shape[::-1], flattened(given))


def _output(tensor: Tensor) -> Any:
    values = output_values(tensor)
    return values[0] if len(values) == 1 else values


class Events(Response):
    """The responses to a request as server-sent events; the first decides the status."""

    def __init__(self, call: DecodedRequest, admission: Admission) -> None:
        super().__init__()
        self._call, self._admission = call, admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._admission.request(self._call.model.name) as errors:
            work = asyncio.ensure_future(self._send_all(send, errors))
            await until_disconnect(Request(scope, receive), work)

    async def _send_all(self, send: Send, errors: list[BaseException]) -> None:
        began = False

        async def start(status: int) -> None:
            headers = [(b"content-type", _EVENTS.encode()), (b"cache-control", b"no-cache")]
            await send({"type": "http.response.start", "status": status, "headers": headers})

        async with aclosing(responses(self._call)) as stream:
            async for response in stream:
                try:
                    document: Any = generated(self._call, without_error(response))
                    status = 200
                except ProtocolError as error:
                    document, status = {"error": error.message}, 400
                    errors.append(error)
                if not began:
                    await start(status)
                began = True
                text = b"data: " + written(document) + b"\n\n"
                await send({"type": "http.response.body", "body": text, "more_body": True})
        if not began:
            await start(200)
        await send({"type": "http.response.body", "body": b""})


async def only_response(call: DecodedRequest) -> InferenceResponse:
    """Return the response to a request; ProtocolError if it is not the only one."""
    found = []
    async with aclosing(responses(call)) as stream:
        async for response in stream:
            found.append(response)
            if len(found) > 1:
                break
    return found[0] if len(found) == 1 else refuse(_ONE_RESPONSE)


async def responses(call: DecodedRequest) -> AsyncGenerator[InferenceResponse]:
    """Send a request and yield its responses, without a final flag alone. Closing it early cancels the request."""
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
