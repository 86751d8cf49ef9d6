"""The HTTP connections to one server, kept open between requests."""

from __future__ import annotations

import http.client
import select
import socket
import ssl

from bls_notebook.network.connection.address import Address

CONNECT_SECONDS = 5.0
_IDLE_CONNECTIONS = 64


class Connections:
    """The open connections to one server, from which each request takes one."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[http.client.HTTPConnection] = []
        self._closed = False
        self._context: ssl.SSLContext | None = None
        if address.encrypted:
            tls = address.tls
            self._context = ssl.create_default_context(cafile=tls.root_certificates)
            if tls.certificate_chain is not None:
                self._context.load_cert_chain(tls.certificate_chain, tls.private_key)

    def take(self) -> http.client.HTTPConnection | None:
        """Return an idle connection that the server has not closed, if there is one."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread took it
                break
            if _is_quiet(connection.sock):
                return connection
            connection.close()
        return None

    def open(self, seconds: float | None) -> http.client.HTTPConnection:
        """Return a new connection; OSError if the server cannot be reached."""
        address = self._address
        limit = min(CONNECT_SECONDS, seconds or CONNECT_SECONDS)
        connection: http.client.HTTPConnection
        if self._context is None:
            connection = http.client.HTTPConnection(address.host, address.port, timeout=limit)
        else:
            connection = http.client.HTTPSConnection(
                address.host, address.port, timeout=limit, context=self._context
            )
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        return connection

    def give_back(self, connection: http.client.HTTPConnection) -> None:
        """Keep a connection for the next request, or close it where there are enough."""
        if len(self._idle) >= _IDLE_CONNECTIONS:
            connection.close()
            return
        self._idle.append(connection)
        if self._closed:  # perhaps since the request began
            self.close()

    def close(self) -> None:
        """Close the idle connections, and from now on those that are given back."""
        self._closed = True
        while (connection := self.take()) is not None:
            connection.close()


def _is_quiet(connection: socket.socket) -> bool:
    """Whether there is nothing to read from a connection, not even its end."""
    if not hasattr(select, "poll"):  # Windows
        return not select.select([connection], [], [], 0)[0]
    (poll := select.poll()).register(connection, select.POLLIN)
    return not poll.poll(0)
