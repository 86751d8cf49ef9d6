"""uvicorn in a running event loop, without log lines; size limits, compression and disconnects of clients."""

from __future__ import annotations

import asyncio
import logging
import socket
import zlib
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from starlette.requests import ClientDisconnect, Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from bls_notebook.network.kserve.errors import UNSUPPORTED, ProtocolError, refuse
from bls_notebook.network.kserve.json_codec import INCREASE
from bls_notebook.network.limits import CHUNKS, HEADERS, IDLE_SECONDS, Limits

from .admission import Admission

_ACCEPTED = 16  # connections that the loop accepts in one turn, between which it closes others
_LINES, _SLOW_BYTES = 64, 512  # data with more lines than these allow is parsed a few bytes at a time
_quiet = logging.getLogger(__name__)
_quiet.setLevel(logging.CRITICAL)  # clients get the errors, not the notebook


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, with a queue of waiting connections that is longer than what the loop accepts in one turn."""
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(2048)


class _Connection(h11.Connection):
    """Counts the chunks of a request's body that are not empty."""

    chunks = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Data):
            self.chunks += event.chunk_end
        elif isinstance(event, h11.Request):
            self.chunks = 0
        return event


class HttpServer:
    """Serves an application over HTTP/1.1."""

    def __init__(self, application: Any, limits: Limits) -> None:
        patience = limits.patience
        opened: dict[Any, None] = {}  # connections, the oldest first

        class Protocol(H11Protocol):
            """Closes a connection if a request does not arrive in time, or to make room for another.

            First go those that have not sent the token, then idle ones. uvicorn's httptools protocol would be
            faster, but does not limit the size of headers.
            """

            _lines = 0  # of the headers of a request
            _timeout: asyncio.TimerHandle | None = None
            _trusted = False

            def connection_made(self, transport: Any) -> None:
                self._late = bytearray()  # received, and not parsed yet
                self.logger = self.access_logger = _quiet
                self.conn = self._chunked = _Connection(h11.SERVER, limits.headers)
                super().connection_made(transport)
                self._timeout = self.loop.call_later(patience, transport.close)
                opened[self] = None
                if len(opened) > limits.connections:
                    oldest = next((c for c in opened if not c.trusted), self)
                    victim = oldest if oldest is not self else next((c for c in opened if c.idle), self)
                    del opened[victim]
                    victim.transport.abort()

            @property
            def trusted(self) -> bool:
                """Return whether a request had the token."""
                return self._trusted or (self.scope is not None and "trusted" in self.scope["state"])

            @property
            def idle(self) -> bool:
                """Return whether every request has been answered."""
                return self.cycle is not None and self.cycle.response_complete

            def on_response_complete(self) -> None:
                super().on_response_complete()
                if not self.trusted and self.timeout_keep_alive_task is not None:
                    self.timeout_keep_alive_task.cancel()
                    self.timeout_keep_alive_task = self.loop.call_later(patience, self.timeout_keep_alive_handler)

            def data_received(self, data: bytes) -> None:
                if not self._late and data.count(b"\n") <= _LINES + len(data) // _LINES:
                    self._feed(data)
                    return
                if not self._late:
                    self.loop.call_soon(self._feed_some)
                self._late += data
                self.transport.pause_reading()

            def _feed_some(self) -> None:
                """Parse a little: each line may be a chunk, which takes longer than its bytes suggest."""
                piece = bytes(self._late[:_SLOW_BYTES])
                del self._late[:_SLOW_BYTES]
                if self.transport.is_closing():
                    return
                self._feed(piece)
                if self._late:
                    self.loop.call_soon(self._feed_some)
                elif not (self.flow.read_paused or self.transport.is_closing()):
                    self.transport.resume_reading()

            def _feed(self, data: bytes) -> None:
                previous, self._trusted = self.cycle, self.trusted  # the scope of a next request is new
                if previous is None or previous.response_complete:
                    end = data.find(b"\r\n\r\n")
                    self._lines += data.count(b"\n", 0, len(data) if end < 0 else end)
                    if self._lines > HEADERS:
                        self.send_400_response("the request has too many headers")
                        return
                super().data_received(data)
                if self._chunked.chunks > CHUNKS and self.cycle is not None and not self.cycle.response_complete:
                    self.scope["state"]["chunks"] = self._chunked.chunks
                    self.cycle.keep_alive = False
                    self._late.clear()
                    self.transport.pause_reading()
                if self.cycle is not previous:
                    self._lines = 0
                    self._cancel_timeout()
                elif self._timeout is None and (self.cycle is None or self.cycle.response_complete):
                    self._timeout = self.loop.call_later(patience, self.transport.close)

            def send_400_response(self, msg: str) -> None:
                if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    super().send_400_response(msg)
                self.transport.close()  # without a response where one came before the end of its request

            def connection_lost(self, exc: Exception | None) -> None:
                opened.pop(self, None)
                self._cancel_timeout()
                self._unset_keepalive_if_required()  # uvicorn keeps it, and so this connection, after a reset
                super().connection_lost(exc)

            def _cancel_timeout(self) -> None:
                if self._timeout is not None:
                    self._timeout.cancel()
                    self._timeout = None

        config = uvicorn.Config(
            application, http=Protocol, ws="none", loop="none", lifespan="off", log_config=None,
            access_log=False, proxy_headers=False, server_header=False, date_header=False,
            timeout_keep_alive=IDLE_SECONDS, backlog=_ACCEPTED,
            h11_max_incomplete_event_size=limits.headers,
        )  # fmt: skip
        self._config = config
        self._server = _Server(config)

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
_PIECE = 1 << 16  # bytes


async def until_disconnect(request: Request, work: asyncio.Future[Any], begun: asyncio.Event) -> Any:
    """Await a future; if the client disconnects, cancel it and raise ClientDisconnect.

    Triton notices a disconnect only when it writes, so this watches from the first response on: `begun`.
    """
    gone = False

    async def watch() -> None:
        nonlocal gone
        await begun.wait()
        while (await request.receive())["type"] != "http.disconnect":
            pass
        gone = True
        work.cancel()

    watching = asyncio.ensure_future(watch())
    try:
        return await work
    except asyncio.CancelledError:
        if gone:
            raise ClientDisconnect from None
        work.cancel()
        raise
    finally:
        watching.cancel()


async def _read(request: Request, add: Callable[[int], None]) -> bytes | bytearray:
    whole: bytes | bytearray = b""
    async for piece in request.stream():
        if request.scope["state"].get("chunks", 0) > CHUNKS:
            raise ProtocolError(
                f"Chunked request body exceeds maximum of {CHUNKS} non-empty chunks. Send fewer or larger HTTP chunks."
            )
        add(len(piece))
        if whole:
            whole = whole if isinstance(whole, bytearray) else bytearray(whole)
            whole += piece
        else:
            whole = piece
    return whole


def _unpacked(body: bytes | bytearray, encoding: str, most: int, add: Callable[[int], None]) -> bytearray:
    """Decompress a body of at most `most` bytes; `add` counts its bytes and raises above the limit of all bodies."""
    if encoding not in ("gzip", "deflate"):
        raise ProtocolError(UNKNOWN_ENCODING, UNSUPPORTED)
    if not body:
        refuse("the body is empty, so it cannot be decompressed")
    unpacking = zlib.decompressobj(31 if encoding == "gzip" else 15)
    out = bytearray()
    try:
        for start in range(0, len(body), _PIECE):
            rest = bytes(body[start : start + _PIECE])
            while rest and not unpacking.eof:
                piece = unpacking.decompress(rest, _PIECE)
                rest = unpacking.unconsumed_tail
                if len(out) + len(piece) > most:
                    refuse(f"Decompressed data size exceeds the maximum allowed value of {most} bytes. {INCREASE}")
                add(len(piece))
                out += piece
        out += unpacking.flush()
    except zlib.error as error:
        refuse(f"the body is not valid {encoding} data: {error}")
    if not unpacking.eof:
        refuse(f"the body's {encoding} data is truncated")
    return out


async def read_body(request: Request, admission: Admission) -> bytes | bytearray:
    """Read the body of a request and decompress it, within the limits; ``request.scope["bodies"]`` count its bytes."""
    limits = admission.limits
    sent, unpacked = request.scope["bodies"]
    length = request.headers.get("content-length", "")
    if length.isdigit():
        sent.add(int(length[:19]))  # before it is received
        sent.release()
    try:
        body = await asyncio.wait_for(_read(request, sent.add), limits.patience)
    except asyncio.TimeoutError:
        raise ProtocolError(f"the body did not arrive within {limits.patience:g} s") from None
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return body
    return await admission.work(limits.body, _unpacked, body, encoding, limits.http_input, unpacked.add)


def coding_of(request: Request) -> str:
    """Return the compression that the client accepts: gzip, deflate, or empty for none."""
    for coding in request.headers.get("accept-encoding", "").lower().split(","):
        name, _, weight = coding.strip().partition(";")
        if name.strip() in ("gzip", "deflate") and weight.replace(" ", "") not in ("q=0", "q=0.0"):
            return name.strip()
    return ""


def packed(content: bytes, coding: str) -> bytes:
    """Return a compressed response body."""
    packing = zlib.compressobj(wbits=31 if coding == "gzip" else 15)
    return packing.compress(content) + packing.flush()
