"""An HTTP server in a running event loop: uvicorn without log lines, bodies within limits, and disconnects."""

from __future__ import annotations

import asyncio
import logging
import socket
import zlib
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive
from uvicorn.protocols.http.h11_impl import H11Protocol

from bls_notebook.network.kserve.errors import UNSUPPORTED, ProtocolError, refuse

from .admission import Limits

_IDLE = 3600  # seconds that a connection without requests is kept; clients pool them
_quiet = logging.getLogger(__name__)
_quiet.setLevel(logging.CRITICAL)  # clients get their errors, the notebook does not


class HttpServer:
    """Serves an application over HTTP/1.1."""

    def __init__(self, application: Any, limits: Limits) -> None:
        patience = limits.patience

        class Protocol(H11Protocol):
            """Closes a connection whose request does not come in time.

            uvicorn's other one, by httptools, would be quicker, and takes headers of any size.
            """

            _late: asyncio.TimerHandle | None = None

            def connection_made(self, transport: Any) -> None:
                self.logger = self.access_logger = _quiet
                super().connection_made(transport)
                self._late = self.loop.call_later(patience, transport.close)

            def data_received(self, data: bytes) -> None:
                had = self.cycle
                super().data_received(data)
                if self.cycle is not had:
                    self._settle()
                elif self._late is None and (self.cycle is None or self.cycle.response_complete):
                    self._late = self.loop.call_later(patience, self.transport.close)

            def connection_lost(self, exc: Exception | None) -> None:
                self._settle()
                super().connection_lost(exc)

            def _settle(self) -> None:
                if self._late is not None:
                    self._late.cancel()
                    self._late = None

        config = uvicorn.Config(
            application, http=Protocol, ws="none", loop="none", lifespan="off", log_config=None,
            access_log=False, proxy_headers=False, server_header=False, date_header=False,
            limit_concurrency=limits.connections, timeout_keep_alive=_IDLE, backlog=2048,
            h11_max_incomplete_event_size=limits.headers,
        )  # fmt: skip
        self._config = config
        self._server = uvicorn.Server(config)

    async def serve(self, listening: socket.socket) -> None:
        """Serve until `stop`; uvicorn would log the start and the end."""
        log = logging.getLogger("uvicorn.error")
        level = log.level
        log.setLevel(logging.CRITICAL)
        try:
            await self._server.serve([listening])
        finally:
            log.setLevel(level)

    async def stop(self, serving: asyncio.Future[None], grace: float) -> None:
        """Finish requests under way, for so many seconds at most, and cancel the rest."""
        self._config.timeout_graceful_shutdown = max(1, round(grace))
        self._server.should_exit = True
        await serving


UNKNOWN_ENCODING = "Unsupported compression type"
_SOON = 0.05  # seconds before a client is watched for a disconnect
_PIECE = 1 << 16  # bytes


class GoneError(Exception):
    """The client disconnected."""


def _too_large(limit: int) -> ProtocolError:
    words = f"the request is larger than the {limit:,} bytes that this endpoint takes (body_limit)"
    return ProtocolError(words, status=413)


async def until_disconnect(request: Request, work: Any) -> Any:
    """Await a future; cancel it if the client disconnects."""
    loop = asyncio.get_running_loop()
    watching: asyncio.Task[None] | None = None
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await request.receive())["type"] != "http.disconnect":
            pass
        gone = True
        work.cancel()

    def begin() -> None:
        nonlocal watching
        watching = loop.create_task(watch())

    timer = loop.call_later(_SOON, begin)
    try:
        return await work
    except asyncio.CancelledError:
        if gone:
            raise GoneError from None
        work.cancel()
        raise
    finally:
        timer.cancel()
        if watching is not None:
            watching.cancel()


async def _read(receive: Receive, limit: int) -> bytes | bytearray:
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        return body
    whole = bytearray()
    while True:
        if message["type"] == "http.disconnect":
            raise GoneError
        whole += message.get("body", b"")
        if len(whole) > limit:
            raise _too_large(limit)
        if not message.get("more_body"):
            return whole
        message = await receive()


def _unpacked(body: bytes | bytearray, encoding: str, limit: int) -> bytes | bytearray:
    """Decompress a body up to the limit."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise ProtocolError(UNKNOWN_ENCODING, UNSUPPORTED)
    if not body:
        refuse("nothing to be decompressed")
    unpacking = zlib.decompressobj(31 if encoding == "gzip" else 15)
    out, rest = bytearray(), bytes(body)
    try:
        while rest and not unpacking.eof:
            out += unpacking.decompress(rest, _PIECE)
            rest = unpacking.unconsumed_tail
            if len(out) > limit:
                raise _too_large(limit)
        out += unpacking.flush()
    except zlib.error as error:
        refuse(f"the body is no {encoding} data: {error}")
    if not unpacking.eof:
        refuse(f"the body's {encoding} data is cut short")
    return out


async def read_body(request: Request, limits: Limits) -> bytes | bytearray:
    """Read the body of a request and decompress it, within the limits."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and (len(length) > 18 or int(length) > limits.body):
        raise _too_large(limits.body)
    try:
        body = await asyncio.wait_for(_read(request.receive, limits.body), limits.patience)
    except asyncio.TimeoutError:
        raise ProtocolError(f"the body was not there within {limits.patience:g} s") from None
    return _unpacked(body, request.headers.get("content-encoding", "identity"), limits.body)


def packed(request: Request, response: Response) -> Response:
    """Compress a response if the client accepts that."""
    wanted = request.headers.get("accept-encoding", "")
    if not wanted:
        return response
    for each in wanted.lower().split(","):
        name, _, weight = each.strip().partition(";")
        if name.strip() in ("gzip", "deflate") and weight.replace(" ", "") not in ("q=0", "q=0.0"):
            packing = zlib.compressobj(wbits=31 if name.strip() == "gzip" else 15)
            content = packing.compress(response.body) + packing.flush()
            kept = {key: value for key, value in response.headers.items() if key != "content-length"}
            return Response(content, 200, {**kept, "content-encoding": name.strip()})
    return response
