"""HTTP: a `Link` by connections of Python's own that are kept open, one for each request under way.

A request that is waited for runs on its caller's own thread, the others on worker threads.
"""

from __future__ import annotations

import http.client
import json
import select
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from bls_notebook.pb_utils.errors import ErrorCode
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from .address import Address
from .carried import headers_of, parameters_of, parameters_of_model
from .described import plain_metadata
from .link import ASK_SECONDS, NUMBER, RETRIES, Deliver, InThread, Link, RemoteError
from .tensors import AnswerError, listed, raw_of, tensor_of, tensor_of_list

_CONNECT_SECONDS = 5.0
_MOST_KEPT = 16  # idle connections
_JOINED = 1 << 16  # bytes of a body up to which it is sent with its headers
_JSON_LENGTH = "Inference-Header-Content-Length"
_BINARY = "binary_tensor_data"
_CODES = {
    400: ErrorCode.INVALID_ARG, 404: ErrorCode.NOT_FOUND, 409: ErrorCode.ALREADY_EXISTS,
    499: ErrorCode.CANCELLED, 500: ErrorCode.INTERNAL, 501: ErrorCode.UNSUPPORTED,
    503: ErrorCode.UNAVAILABLE,
}  # fmt: skip
_Answer = tuple[int, bytes, int | None]  # status, body, and how much of that is JSON


class HttpLink(Link):
    """A connection over HTTP."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._kept: list[http.client.HTTPConnection] = []
        self._pool = threading.Lock()
        self._context: ssl.SSLContext | None = None
        if address.encrypted:
            tls = address.tls
            self._context = ssl.create_default_context(cafile=tls.root_certificates)
            if tls.certificate_chain is not None:
                self._context.load_cert_chain(tls.certificate_chain, tls.private_key)

    def exchange(self, name: str, version: str, request: InferenceRequest, all_outputs: bool) -> HttpExchange:
        """Return a request to a model, ready to be sent."""
        options = request._options
        binary = _BINARY in self.extensions
        described, raws = [], []
        for tensor in request._inputs:
            one: dict[str, Any] = {
                "name": tensor._name, "shape": list(tensor._array.shape), "datatype": tensor._datatype,
            }  # fmt: skip
            if binary:
                raw = raw_of(tensor)
                raws.append(raw)
                one["parameters"] = {"binary_data_size": len(raw)}
            else:
                one["data"] = listed(tensor)
            described.append(one)
        document: dict[str, Any] = {"inputs": described}
        parameters = parameters_of(options)
        if binary and all_outputs:
            parameters["binary_data_output"] = True
        if not all_outputs:
            wanted = {"parameters": {"binary_data": True}} if binary else {}
            document["outputs"] = [{"name": output, **wanted} for output in request._requested]
        if parameters:
            document["parameters"] = parameters
        if options.request_id:
            document["id"] = options.request_id
        head = json.dumps(document, separators=(",", ":")).encode()
        headers = {**self.address.headers, **headers_of(options)}
        headers["Content-Type"] = "application/octet-stream" if binary else "application/json"
        if binary:
            headers[_JSON_LENGTH] = str(len(head))
        return HttpExchange(self, f"{_model(name, version)}/infer", [head, *raws], headers)

    # -- asking --------------------------------------------------------------------------------------

    def live(self, seconds: float, headers: Mapping[str, str] | None = None) -> None:
        """Return if the server answers within so many seconds, else raise RemoteError."""
        more = {**self.address.headers, **(headers or {})}
        status = Conversation(self, "GET", "/v2/health/live", headers=more).held(seconds)[0]
        if status in (502, 503, 504):  # of what stands before it
            raise self.unanswered(f"HTTP {status}", False)

    def ready(self, name: str, version: str, seconds: float) -> bool:
        """Whether a model says that it can serve."""
        return Conversation(self, "GET", f"{_model(name, version)}/ready").held(seconds)[0] == 200

    def describe(self) -> None:
        """Ask the server what it is."""
        said = self._ask("GET", "/v2")
        self.server = " ".join(str(said[k]) for k in ("name", "version") if said.get(k))
        found = said.get("extensions")
        self.extensions = frozenset(map(str, found)) if isinstance(found, list) else frozenset()

    def index(self) -> list[tuple[str, str, str]]:
        """Return name, version and state of each model."""
        rows = self._ask("POST", "/v2/repository/index", b"{}", kind=list)
        rows = [row for row in rows if isinstance(row, dict)]
        return [(str(r.get("name")), str(r.get("version") or ""), str(r.get("state") or "")) for r in rows]

    def metadata(self, name: str, version: str) -> dict[str, Any]:
        """Return a model's metadata."""
        path = _model(name, version)
        try:
            return plain_metadata(self._ask("GET", path))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._no_answer(path, f"{type(error).__name__}: {error}") from error

    def config(self, name: str, version: str) -> bytes | Mapping[str, Any] | None:
        """Return a model's configuration as JSON; None where the server has none to give."""
        if "model_configuration" not in self.extensions:
            return None
        said: Mapping[str, Any] = self._ask("GET", f"{_model(name, version)}/config")
        return said

    def statistics(self, name: str, version: str, seconds: float) -> dict[str, Any]:
        """Return a model's statistics, as Triton's JSON has them."""
        path = _model(name, version) if name else "/v2/models"
        said: dict[str, Any] = self._ask("GET", f"{path}/stats", seconds=seconds)
        return said

    def _ask(
        self, method: str, path: str, body: bytes = b"", seconds: float = ASK_SECONDS, kind: type = dict
    ) -> Any:
        headers = {**self.address.headers, "Content-Type": "application/json"}
        status, answer, _ = Conversation(self, method, path, [body], headers).held(seconds)
        if status != 200:
            raise error_of(self, status, answer)
        try:
            said = json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise self._no_answer(path, str(error)) from error
        if not isinstance(said, kind):
            raise self._no_answer(path, f"expected JSON of a {kind.__name__}, got {type(said).__name__}")
        return said

    def _no_answer(self, path: str, why: str) -> RemoteError:
        what = f"the answer to {path} is not as the protocol says ({why}); is it a KServe v2 server?"
        return RemoteError(what, ErrorCode.INTERNAL)

    def _hang_up(self) -> None:
        with self._pool:
            kept, self._kept = self._kept, []
        for connection in kept:
            connection.close()

    # -- connections -----------------------------------------------------------------------------------

    def connected(self, seconds: float | None) -> http.client.HTTPConnection:
        """Return an open connection that nobody uses; OSError where the server cannot be reached."""
        while True:
            with self._pool:
                found = self._kept.pop() if self._kept else None
            if found is None:
                break
            if _is_quiet(found.sock):  # else the server has closed it
                found.sock.settimeout(seconds)
                return found
            found.close()
        where, limit = self.address, min(_CONNECT_SECONDS, seconds or _CONNECT_SECONDS)
        made: http.client.HTTPConnection
        if self._context is not None:
            made = http.client.HTTPSConnection(where.host, where.port, timeout=limit, context=self._context)
        else:
            made = http.client.HTTPConnection(where.host, where.port, timeout=limit)
        made.connect()
        made.sock.settimeout(seconds)
        return made

    def keep(self, connection: http.client.HTTPConnection) -> None:
        """Take back a connection whose answer has been read."""
        with self._pool:
            if not self.closed and len(self._kept) < _MOST_KEPT:
                self._kept.append(connection)
                return
        connection.close()


class Conversation:
    """One request over HTTP and its answer, on one thread; any thread may end it."""

    def __init__(
        self,
        link: HttpLink,
        method: str,
        path: str,
        body: list[Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._link = link
        self._method = method
        self._path = link.address.path + path
        self._body = body or []
        self.headers = link.address.headers if headers is None else headers
        self._connection: http.client.HTTPConnection | None = None
        self.ended = False

    def end(self) -> None:
        """End it: whoever waits for it is told so."""
        self.ended = True
        connection = self._connection
        sock = None if connection is None else connection.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:  # it is closed already
                pass

    def held(self, seconds: float | None) -> _Answer:
        """Return the answer; RemoteError where there is none. What cannot be sent is tried again."""
        for pause in (*RETRIES, None):
            try:
                return self._held(seconds)
            except RemoteError as error:
                if error.sent or pause is None or self.ended or self._link.lost:
                    raise
            time.sleep(pause)
        raise AssertionError

    def _held(self, seconds: float | None) -> _Answer:
        link, sent = self._link, False
        try:
            self._connection = connection = link.connected(seconds)
            try:
                if self.ended:
                    raise OSError("it was given up")
                sent = True
                self._send(connection)
                response = connection.getresponse()
                body = response.read()
                given = response.headers.get(_JSON_LENGTH)
                length = None if given is None else int(given)
                self._connection = None
                if response.will_close:
                    connection.close()
                else:
                    link.keep(connection)
                return response.status, body, length
            except BaseException:
                connection.close()
                raise
        except TimeoutError as error:
            if sent and seconds is not None:
                raise self._too_long(seconds) from error
            raise link.unanswered(f"no connection within {_CONNECT_SECONDS:g} s", sent) from error
        except ssl.SSLError as error:
            raise link.unanswered(f"TLS: {error.reason or error}", sent) from error
        except (OSError, http.client.HTTPException) as error:
            raise link.unanswered(_words(error), sent) from error
        except ValueError as error:
            raise RemoteError(
                f"{link.address}: the answer is no HTTP ({error})", ErrorCode.INTERNAL
            ) from error
        finally:
            self._connection = None

    def _too_long(self, seconds: float) -> RemoteError:
        link = self._link
        if seconds == link.address.timeout:
            return link.timed_out()
        return link.unanswered(f"no answer within {seconds:g} s", True)

    def _send(self, connection: http.client.HTTPConnection) -> None:
        size = sum(len(part) for part in self._body)
        connection.putrequest(self._method, self._path, skip_accept_encoding=True)
        for name, value in self.headers.items():
            connection.putheader(name, value)
        if self._body:
            connection.putheader("Content-Length", str(size))
        if size <= _JOINED:
            connection.endheaders(b"".join(self._body) if size else None)
            return
        connection.endheaders()
        for part in self._body:
            connection.send(part)


class HttpExchange:
    """A request that has one answer."""

    def __init__(self, link: HttpLink, path: str, body: list[Any], headers: Mapping[str, str]) -> None:
        self._link = link
        self._conversation = Conversation(link, "POST", path, body, headers)
        self._lost = ""

    def cancel(self, lost: str = "") -> None:
        """Give up; the connection is closed, which tells the server."""
        self._lost = lost
        self._conversation.end()

    def number(self, number: str) -> None:
        """Have it carry a number."""
        self._conversation.headers = {**self._conversation.headers, NUMBER: number}

    def run(self) -> InferenceResponse:
        """Send it, and wait for the answer on this thread."""
        link = self._link
        link.begun(self)
        try:
            status, body, length = self._conversation.held(link.address.timeout)
            if status != 200:
                return link.failed(error_of(link, status, body))
            return read_response(body, length)
        except RemoteError as error:
            ended = self._conversation.ended
            return link.failed(link.cancelled(self._lost) if ended else error)
        except AnswerError as error:
            return link.failed(RemoteError(f"{link.address}: {error}", ErrorCode.INTERNAL))
        finally:
            link.over(self)

    def start(self, deliver: Deliver, in_thread: InThread) -> None:
        """Send it, on a worker thread."""
        in_thread(lambda: deliver(self.run(), True))


def read_response(body: bytes, length: int | None) -> InferenceResponse:
    """Return the response of a body; `length` bytes of it are JSON, None for all.

    Raises
    ------
    AnswerError
        It is not what the protocol says.
    """
    view = memoryview(body)
    at = len(body) if length is None else length
    try:
        document = json.loads(bytes(view[:at]))
        outputs = document.get("outputs") or []
        tensors = []
        for output in outputs:
            size = (output.get("parameters") or {}).get("binary_data_size")
            parts = (output["name"], output["datatype"], output["shape"])
            if size is None:
                tensors.append(tensor_of_list(*parts, output.get("data") or []))
            else:
                tensors.append(tensor_of(*parts, view[at : at + size]))
                at += size
        parameters = parameters_of_model(document.get("parameters") or {})
    except AnswerError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise AnswerError(
            f"the answer is not as the protocol says ({type(error).__name__}: {error})"
        ) from error
    response = InferenceResponse(tensors)
    response._parameters = parameters
    return response


def error_of(link: HttpLink, status: int, body: bytes) -> RemoteError:
    """Return the error that a server answered with."""
    try:
        document = json.loads(body)
        words = document.get("error") or document.get("detail") or document.get("message")
    except (ValueError, AttributeError, RecursionError):
        words = None
    if words is None and status in (502, 503, 504):  # of what stands before the server
        return link.unanswered(f"HTTP {status}", True)
    text = words if isinstance(words, str) else " ".join(body[:300].decode("utf-8", "replace").split())
    return RemoteError(text or f"the server answered HTTP {status}", _CODES.get(status, ErrorCode.UNKNOWN))


def _is_quiet(sock: socket.socket) -> bool:
    """Whether there is nothing to be read, not even an end."""
    if not hasattr(select, "poll"):  # Windows
        return not select.select([sock], [], [], 0)[0]
    (poll := select.poll()).register(sock, select.POLLIN)
    return not poll.poll(0)


def _model(name: str, version: str) -> str:
    path = f"/v2/models/{quote(name, safe='')}"
    return f"{path}/versions/{quote(version, safe='')}" if version else path


def _words(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, http.client.RemoteDisconnected):
        return "what answers there does not speak HTTP"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:200]


HttpLink.waits = (HttpLink.connected, Conversation._held, Conversation._send)
