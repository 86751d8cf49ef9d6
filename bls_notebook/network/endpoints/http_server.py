"""uvicorn in a running event loop, without log lines; size limits, compression and disconnects of clients."""

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

_IDLE = 3600  # seconds that an idle connection stays open; clients pool connections
_quiet = logging.getLogger(__name__)
_quiet.setLevel(logging.CRITICAL)  # clients get the errors, not the notebook


class HttpServer:
    """Serves an application over HTTP/1.1."""

    def __init__(self, application: Any, limits: Limits) -> None:
        patience = limits.patience

        class Protocol(H11Protocol):
            """Closes a connection if a request does not arrive in time.

            uvicorn's httptools protocol would be faster, but does not limit the size of headers.
            """

            _timeout: asyncio.TimerHandle | None = None

            def connection_made(self, transport: Any) -> None:
                self.logger = self.access_logger = _quiet
                super().connection_made(transport)
                self._timeout = self.loop.call_later(patience, transport.close)

            def data_received(self, data: bytes) -> None:
                previous = self.cycle
                super().data_received(data)
                if self.cycle is not previous:
                    self._cancel_timeout()
                elif self._timeout is None and (self.cycle is None or self.cycle.response_complete):
                    self._timeout = self.loop.call_later(patience, self.transport.close)

            def connection_lost(self, exc: Exception | None) -> None:
                self._cancel_timeout()
                super().connection_lost(exc)

            def _cancel_timeout(self) -> None:
                if self._timeout is not None:
                    self._timeout.cancel()
                    self._timeout = None

        config = uvicorn.Config(
            application, http=Protocol, ws="none", loop="none", lifespan="off", log_config=None,
            access_log=False, proxy_headers=False, server_header=False, date_header=False,
            limit_concurrency=limits.connections, timeout_keep_alive=_IDLE, backlog=2048,
            h11_max_incomplete_event_size=limits.headers,
        )  # fmt: skip
        self._config = config
        self._server = uvicorn.Server(config)

    async def serve(self, listening: socket.socket) -> None:
        """Serve until `stop`, without uvicorn's log lines about start and end."""
        log = logging.getLogger("uvicorn.error")
        level = log.level
        log.setLevel(logging.CRITICAL)
        try:
            await self._server.serve([listening])
        finally:
            log.setLevel(level)

    async def stop(self, serving: asyncio.Future[None], grace: float) -> None:
        """Give requests in flight `grace` seconds to finish, then cancel the rest."""
        self._config.timeout_graceful_shutdown = max(1, round(grace))
        self._server.should_exit = True
        await serving


UNKNOWN_ENCODING = "Unsupported compression type"
_SOON = 0.05  # seconds after which a request is watched for a disconnect
_PIECE = 1 << 16  # bytes


class GoneError(Exception):
    """The client disconnected."""


def _too_large(limit: int) -> ProtocolError:
    message = f"the request is larger than the {limit:,} bytes that this endpoint accepts (body_limit)"
    return ProtocolError(message, status=413)


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
        refuse("the body is empty, so it cannot be decompressed")
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
        refuse(f"the body is not valid {encoding} data: {error}")
    if not unpacking.eof:
        refuse(f"the body's {encoding} data is truncated")
    return out


async def read_body(request: Request, limits: Limits) -> bytes | bytearray:
    """Read the body of a request and decompress it, within the limits."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and (len(length) > 18 or int(length) > limits.body):
        raise _too_large(limits.body)
    try:
        body = await asyncio.wait_for(_read(request.receive, limits.body), limits.patience)
    except asyncio.TimeoutError:
        raise ProtocolError(f"the body did not arrive within {limits.patience:g} s") from None
    return _unpacked(body, request.headers.get("content-encoding", "identity"), limits.body)


def packed(request: Request, response: Response) -> Response:
    """Return a response, compressed if the client accepts that."""
    accepted = request.headers.get("accept-encoding", "")
    if not accepted:
        return response
    for coding in accepted.lower().split(","):
        name, _, weight = coding.strip().partition(";")
        if name.strip() in ("gzip", "deflate") and weight.replace(" ", "") not in ("q=0", "q=0.0"):
            packing = zlib.compressobj(wbits=31 if name.strip() == "gzip" else 15)
            content = packing.compress(response.body) + packing.flush()
            headers = {key: value for key, value in response.headers.items() if key != "content-length"}
            return Response(content, 200, {**headers, "content-encoding": name.strip()})
    return response
