"""One exchange over HTTP: a body read within its limits, unpacking and packing, and clients that go away."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from bls_notebook.network.kserve.errors import UNSUPPORTED, ProtocolError, refuse

UNKNOWN_ENCODING = "Unsupported compression type"
_SOON = 0.05  # seconds until somebody looks whether the client of a request is still there
_AT_ONCE = 1 << 16  # bytes unpacked at once


class GoneError(Exception):
    """The client went away."""


class TooLargeError(ProtocolError):
    """A request of more bytes than the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the request is larger than the {limit:,} bytes that this endpoint takes (body_limit)")

    @property
    def status(self) -> int:
        """What HTTP answers."""
        return 413


async def while_there(request: Request, work: Any) -> Any:
    """Await a future; cancel it where the client goes away."""
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


async def read(receive: Receive, limit: int) -> bytes | bytearray:
    """Read the body of a request."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        if len(body) > limit:
            raise TooLargeError(limit)
        return body
    whole = bytearray()
    while True:
        if message["type"] == "http.disconnect":
            raise GoneError
        whole += message.get("body", b"")
        if len(whole) > limit:
            raise TooLargeError(limit)
        if not message.get("more_body"):
            return whole
        message = await receive()


def unpacked(body: bytes | bytearray, encoding: str, limit: int) -> bytes | bytearray:
    """Unpack a body, as far as the limit."""
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
            out += unpacking.decompress(rest, _AT_ONCE)
            rest = unpacking.unconsumed_tail
            if len(out) > limit:
                raise TooLargeError(limit)
        out += unpacking.flush()
    except zlib.error as error:
        refuse(f"the body is no {encoding} data: {error}")
    if not unpacking.eof:
        refuse(f"the body's {encoding} data is cut short")
    return out


def packed(request: Request, response: Response) -> Response:
    """Compress an answer where the client asks for it, and it is worth it."""
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
