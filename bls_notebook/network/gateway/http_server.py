"""uvicorn in an event loop that is there already: no signal handlers, no log lines, and slow clients end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .admission import Limits

_IDLE = 3600  # seconds that a connection without requests is kept; clients pool them
_TOGETHER = 1 << 16  # bytes that are copied rather than sent by themselves
_quiet = logging.getLogger(__name__)
_quiet.setLevel(logging.CRITICAL)  # what clients do wrong they are told, not the notebook


class _Gathered:
    """A transport that sends what is written in one turn of the loop together: head and body of an answer."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._waiting: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send, soon."""
        if not self._waiting:
            self._loop.call_soon(self._send)
        self._waiting.append(data)

    def close(self) -> None:
        """Send what waits, and close."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        parts, self._waiting = self._waiting, []
        if sum(map(len, parts)) <= _TOGETHER:
            parts = [b"".join(parts)]
        for part in parts:
            if part and not self._transport.is_closing():
                self._transport.write(part)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


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
                super().connection_made(_Gathered(transport, self.loop))  # type: ignore[arg-type]
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
        """Serve until `stop`."""
        with _no_lines_in_the_log():
            await self._server.serve([listening])

    async def stop(self, serving: asyncio.Future[None], grace: float) -> None:
        """Finish what is under way, for so many seconds at most, and cancel the rest."""
        self._config.timeout_graceful_shutdown = max(1, round(grace))
        self._server.should_exit = True
        await serving


@contextlib.contextmanager
def _no_lines_in_the_log() -> Any:
    """Uvicorn logs that it starts and ends."""
    log = logging.getLogger("uvicorn.error")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)
