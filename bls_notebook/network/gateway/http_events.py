"""The answers of `/generate_stream`: server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bls_notebook.network.kserve.errors import ProtocolError
from bls_notebook.network.kserve.json_codec import written
from bls_notebook.network.kserve.request import DecodedRequest
from bls_notebook.pb_utils import InferenceResponse
from bls_notebook.pb_utils.iterator import StreamEnded

from .admission import Admission, CountedRequest
from .generate import generated
from .http_exchange import while_there
from .sending import answered, is_empty, send_stream

_EVENTS = "text/event-stream; charset=utf-8"


class Events(Response):
    """The answers of a call as server-sent events; the first decides the status."""

    def __init__(self, call: DecodedRequest, admission: Admission) -> None:
        super().__init__()
        self._call, self._admission = call, admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with CountedRequest(self._admission, self._call.model.name) as counted:
            work = asyncio.ensure_future(self._send_all(send))
            counted.error = await while_there(Request(scope, receive), work)

    async def _send_all(self, send: Send) -> ProtocolError | None:
        """Send the answers as they come; return the last error among them."""
        began, failed = False, None
        async with aclosing(responses(send_stream(self._call))) as found:
            async for response in found:
                try:
                    said: Any = generated(self._call, answered(response))
                    status = 200
                except ProtocolError as error:
                    said, status = {"error": error.message}, 400
                    failed = error
                if not began:
                    await _start(send, status)
                began = True
                text = b"data: " + written(said) + b"\n\n"
                await send({"type": "http.response.body", "body": text, "more_body": True})
        if not began:
            await _start(send, 200)
        await send({"type": "http.response.body", "body": b""})
        return failed


async def _start(send: Send, status: int) -> None:
    headers = [(b"content-type", _EVENTS.encode()), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def responses(opening: Any) -> AsyncGenerator[InferenceResponse]:
    """The responses to a request that was sent; a final flag alone is none. Closing it early cancels."""
    stream = await opening
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
