"""The HTTP client: a `Client` on the connections of `http.client`, which it keeps open between requests.

Each request in flight uses one connection and one worker thread. For many concurrent requests gRPC is better, because
it needs no thread for each.

Guarantees: any thread can cancel a request, and Ctrl-C ends a wait. A connection is reused only after its answer
was read completely. An answer is never larger than `INFER_BYTES` or `ANSWER_BYTES`, and never takes longer than
its timeout, however slowly the server sends it.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import socket
import ssl
import struct
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from bls_notebook.backends import Deliver, InThread
from bls_notebook.engine import Parker
from bls_notebook.network.limits import ANSWER_BYTES, INFER_BYTES, OPEN_SECONDS, QUERY_SECONDS, check_json
from bls_notebook.pb_utils import InferenceRequest
from bls_notebook.pb_utils.errors import ErrorCode
from bls_notebook.pb_utils.response import InferenceResponse

from .address import PLAIN, Address
from .client import RETRIES, Client, ServerError, no_kserve
from .json_codec import JSON_LENGTH, decode_response, encode_request
from .request import headers_of
from .tensors import AnswerError

_IDLE_CONNECTIONS = 64


class Connections:
    """A pool of open connections to one server; each request takes one."""

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
        """Return an idle connection that the server has not closed; None if there is none."""
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
        limit = min(OPEN_SECONDS, seconds or OPEN_SECONDS)
        connection: http.client.HTTPConnection
        if self._context is None:
            connection = http.client.HTTPConnection(address.host, address.port, timeout=limit)
        else:
            connection = http.client.HTTPSConnection(address.host, address.port, timeout=limit, context=self._context)
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        return connection

    def give_back(self, connection: http.client.HTTPConnection) -> None:
        """Keep a connection for the next request, or close it if the pool is full."""
        if len(self._idle) >= _IDLE_CONNECTIONS:
            connection.close()
            return
        self._idle.append(connection)
        if self._closed:  # the pool was closed during the request
            self.close()

    def close(self) -> None:
        """Close the idle connections, and every connection given back from now on."""
        self._closed = True
        while (connection := self.take()) is not None:
            connection.close()


def _is_quiet(connection: socket.socket) -> bool:
    """Return whether a connection has nothing to read, not even end of file."""
    if not hasattr(select, "poll"):  # Windows
        return not select.select([connection], [], [], 0)[0]
    (poll := select.poll()).register(connection, select.POLLIN)
    return not poll.poll(0)


_RESET_ON_CLOSE = struct.pack("ii" if os.name == "posix" else "hh", 1, 0)
_JOINED_BYTES = 1 << 16  # a request body up to this size is sent in one piece
_READ_BYTES = 1 << 22
_BINARY = "binary_tensor_data"
_CODES = {
    400: ErrorCode.INVALID_ARG, 404: ErrorCode.NOT_FOUND, 409: ErrorCode.ALREADY_EXISTS,
    499: ErrorCode.CANCELLED, 500: ErrorCode.INTERNAL, 501: ErrorCode.UNSUPPORTED,
    503: ErrorCode.UNAVAILABLE,
}  # fmt: skip


@dataclass(frozen=True)
class HttpAnswer:
    """A complete HTTP response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


_PATHS = {
    "live": "/v2/health/live", "ready": "{model}/ready", "server": "/v2", "index": "/v2/repository/index",
    "model": "{model}", "config": "{model}/config", "statistics": "{model}/stats",
}  # fmt: skip


class HttpExchange:
    """One HTTP request and its answer; any thread may cancel it."""

    def __init__(
        self, link: HttpClient, method: str, path: str, body: Sequence[Any], headers: Mapping[str, str],
        most: int = ANSWER_BYTES,
    ) -> None:  # fmt: skip
        self._link = link
        self._method = method
        self._path = link.address.path + path
        self._body = body
        self._headers = dict(headers)
        self._most = most
        # Guards `_socket`: once given back, a connection belongs to another request. Reentrant, because a
        # destructor on this thread may cancel.
        self._lock = threading.RLock()
        self._socket: socket.socket | None = None
        self._ended = self._late = False
        self._lost = ""

    def cancel(self, lost: str = "") -> None:
        """Cancel: the waiting thread gets an error. `lost`: why, if the server is lost."""
        self._lost = lost
        self._end()

    def _end(self, late: bool = False) -> None:
        with self._lock:
            self._late = late and not self._ended
            self._ended = True
            if self._socket is not None:
                with suppress(OSError):  # the server closed it
                    # Closed with a reset: else a server that is still sending could stay blocked for minutes.
                    self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                    # socket's method, not SSLSocket's: after the latter, pending data would be sent unencrypted.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def answer(self, seconds: float | None, pauses: Sequence[float] = RETRIES) -> HttpAnswer:
        """Send the request and return the answer; retry after each pause if it could not be sent.

        ServerError: there is no answer, or not within `seconds`.
        """
        timer: threading.Timer | None = None
        if seconds is not None:  # a socket's timeout limits each single read, not the whole answer
            timer = threading.Timer(seconds, self._end, (True,))
            timer.daemon = True
            with suppress(RuntimeError):  # no thread can start, so the socket's timeout must suffice
                timer.start()
        try:
            for pause in (*pauses, None):
                try:
                    return self._exchanged(self._connected(seconds), seconds)
                except ServerError as error:
                    if error.sent or pause is None or self._ended or self._link.lost:
                        raise
                Parker().park(pause)
            raise AssertionError
        finally:
            if timer is not None:
                timer.cancel()

    def _connected(self, seconds: float | None) -> http.client.HTTPConnection:
        connections = self._link.connections
        try:
            return connections.take() or connections.open(seconds)
        except Exception as error:
            raise self._problem(error, False, seconds) from error

    def _exchanged(self, connection: http.client.HTTPConnection, seconds: float | None) -> HttpAnswer:
        try:
            with self._lock:
                self._socket = connection.sock
            if self._ended or self._link.closed:
                raise OSError("the request was cancelled")
            connection.sock.settimeout(seconds)
            size = sum(map(len, self._body))
            # The parts of a large body are sent one by one, without a copy.
            body = b"".join(self._body) if size <= _JOINED_BYTES else self._body
            headers = {**self._headers, "Content-Length": str(size)} if self._body else self._headers
            connection.request(self._method, self._path, body or None, headers)
            response = connection.getresponse()
            content = self._content(response)
            if self._ended:  # http.client takes the end of the connection for the end of the headers
                raise OSError("the request was cancelled")
            answer = HttpAnswer(response.status, {k.lower(): v for k, v in response.getheaders()}, content)
        except BaseException as error:
            with self._lock:
                self._socket = None
            connection.close()
            if isinstance(error, Exception):
                raise self._problem(error, True, seconds) from error
            raise
        with self._lock:
            self._socket = None
            reusable = not response.will_close and not self._ended
        if reusable:
            self._link.connections.give_back(connection)
        else:
            connection.close()
        return answer

    def _content(self, response: http.client.HTTPResponse) -> bytes:
        too_large = ValueError(f"its body exceeds the limit of {self._most:,} bytes")
        length = response.length  # None if it is sent in chunks, or ends with the connection
        if length is not None and length > self._most:
            raise too_large
        if length is not None and length <= _READ_BYTES:
            return response.read()
        pieces, size = [], 0
        while piece := response.read(_READ_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > self._most:
                raise too_large
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        return b"".join(pieces)

    def _problem(self, error: Exception, sent: bool, seconds: float | None) -> ServerError:
        """Return the error of a request that failed with an exception."""
        link = self._link
        if self._ended and not self._late:
            return link.cancelled(self._lost)
        if self._late or isinstance(error, TimeoutError):
            if (not sent or seconds is None) and not self._late:
                return link.unanswered(f"no connection within {OPEN_SECONDS:g} s", sent)
            if seconds == link.address.timeout:
                return link.timed_out()
            return link.unanswered(f"no answer within {seconds:g} s", True)
        reason = (str(error) or type(error).__name__)[:200]
        if isinstance(error, ssl.SSLError):
            reason = f"TLS: {error.reason or error}"
        elif isinstance(error, ConnectionRefusedError):
            reason = "connection refused"
        elif isinstance(error, http.client.RemoteDisconnected):
            reason = "the server closed the connection"
        elif isinstance(error, OSError):
            reason = (error.strerror or reason)[:200]
        elif isinstance(error, http.client.IncompleteRead):
            reason = "the server closed the connection before its answer was complete"
        elif isinstance(error, http.client.BadStatusLine):
            reason = "the server at this port does not speak HTTP"
        else:
            return ServerError(f"{link.address}: the answer is invalid ({reason})", ErrorCode.INTERNAL)
        return link.unanswered(reason, sent)


class InferExchange(HttpExchange):
    """An inference request with one response."""

    def start(self, deliver: Deliver, in_thread: InThread) -> None:
        """Send the request on a worker thread, which delivers the response."""
        self._link.begun(self)
        in_thread(lambda: deliver([self._response()], True))

    def _response(self) -> InferenceResponse:
        link = self._link
        try:
            answer = self.answer(link.address.timeout)
            if answer.status != 200:
                raise error_of(link, answer)
            return decode_response(answer.body, answer.headers.get(JSON_LENGTH.lower()))
        except ServerError as error:
            return link.failed(error)
        except AnswerError as error:
            return link.failed(ServerError(f"{link.address}: {error}", ErrorCode.INTERNAL))
        finally:
            link.over(self)


class HttpClient(Client):
    """A connection over HTTP."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self.connections = Connections(address)

    def exchange(self, name: str, version: str, request: InferenceRequest, all_outputs: bool) -> InferExchange:
        """Return a request to a model, ready to be sent."""
        binary = _BINARY in self.extensions
        parts = encode_request(request, all_outputs, binary)
        headers = {**self.address.headers, **headers_of(request._options)}
        headers["Content-Type"] = "application/octet-stream" if binary else "application/json"
        if binary:
            headers[JSON_LENGTH] = str(len(parts[0]))
        return InferExchange(self, "POST", f"{self.model_path(name, version)}/infer", parts, headers, INFER_BYTES)

    def query(self, what: str, name: str = "", version: str = "", seconds: float = QUERY_SECONDS) -> Any:
        """Query the server; see `Client.query`."""
        if what == "config" and "model_configuration" not in self.extensions:
            raise ServerError("the server has no extension model_configuration", ErrorCode.UNSUPPORTED)
        path = _PATHS[what].format(model=self.model_path(name, version) if name else "/v2/models")
        headers = {**self.address.headers, "Content-Type": "application/json"}
        method, body = ("POST", [b"{}"]) if what == "index" else ("GET", [])
        answer = HttpExchange(self, method, path, body, headers).answer(self.remaining(seconds))
        if answer.status != 200:
            raise error_of(self, answer)
        if what in ("live", "ready"):
            return {}
        try:
            check_json(answer.body)
            document = json.loads(answer.body)
        except (ValueError, RecursionError) as error:
            raise no_kserve(path, str(error)) from error
        kind = list if what == "index" else dict
        if not isinstance(document, kind):
            raise no_kserve(path, f"expected JSON of a {kind.__name__}, got {type(document).__name__}")
        return document

    def model_path(self, name: str, version: str) -> str:
        safe = f"%{PLAIN}" if self.server.startswith("triton") else PLAIN  # Triton does not unquote
        path = f"/v2/models/{quote(name, safe=safe)}"
        return f"{path}/versions/{quote(version, safe='')}" if version else path

    def _hang_up(self) -> None:
        self.connections.close()


def error_of(client: HttpClient, answer: HttpAnswer) -> ServerError:
    """Return the error of an answer whose status is not 200."""
    if _error_member(answer) is None and answer.status in (502, 503, 504):  # from a proxy in front of the server
        return client.unanswered(f"HTTP {answer.status}", True)
    return ServerError(error_text(answer), _CODES.get(answer.status, ErrorCode.UNKNOWN))


def error_text(answer: HttpAnswer) -> str:
    """Return the message of an error answer; a text with its status if it has none."""
    text = _error_member(answer)
    if not isinstance(text, str):
        text = " ".join(answer.body[:300].decode("utf-8", "replace").split())
    return text or f"the server answered HTTP {answer.status}"


def _error_member(answer: HttpAnswer) -> Any:
    try:
        check_json(answer.body)
        document = json.loads(answer.body)
        return document.get("error") or document.get("detail") or document.get("message")
    except (ValueError, AttributeError, RecursionError):
        return None
