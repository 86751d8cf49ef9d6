"""HTTP: a `Link` by connections that are kept open, one for each request under way.

A request that is waited for runs on its caller's own thread. Others are sent there too where that takes no
wait, and one thread receives what comes (`http_talk.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from bls_notebook.pb_utils.errors import ErrorCode
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from .address import PLAIN, Address
from .carried import headers_of, parameters_of, parameters_of_model
from .described import plain_metadata
from .http_talk import Connections, Conversation
from .http_wire import Answer
from .link import ASK_SECONDS, Deliver, InThread, Link, RemoteError
from .tensors import AnswerError, listed, raw_of, tensor_of, tensor_of_list

_JSON_LENGTH = "Inference-Header-Content-Length"
_BINARY = "binary_tensor_data"
_CODES = {
    400: ErrorCode.INVALID_ARG, 404: ErrorCode.NOT_FOUND, 409: ErrorCode.ALREADY_EXISTS,
    499: ErrorCode.CANCELLED, 500: ErrorCode.INTERNAL, 501: ErrorCode.UNSUPPORTED,
    503: ErrorCode.UNAVAILABLE,
}  # fmt: skip


class HttpLink(Link):
    """A connection over HTTP."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._connections = Connections(address)

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
        return HttpExchange(
            self, self._talk("POST", f"{self._model(name, version)}/infer", [head, *raws], headers)
        )

    # -- asking --------------------------------------------------------------------------------------

    def live(self, seconds: float) -> None:
        """Return if the server answers within so many seconds, else raise RemoteError."""
        status = self._talk("GET", "/v2/health/live", (), self.address.headers).held(seconds).status
        if status in (502, 503, 504):  # of what stands before it
            raise self.unanswered(f"HTTP {status}", False)

    def ready(self, name: str, version: str, seconds: float) -> bool:
        """Whether a model says that it can serve."""
        asked = self._talk("GET", f"{self._model(name, version)}/ready", (), self.address.headers)
        return asked.held(seconds).status == 200

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
        path = self._model(name, version)
        try:
            return plain_metadata(self._ask("GET", path))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._no_answer(path, f"{type(error).__name__}: {error}") from error

    def config(self, name: str, version: str) -> bytes | Mapping[str, Any] | None:
        """Return a model's configuration as JSON; None where the server has none to give."""
        if "model_configuration" not in self.extensions:
            return None
        said: Mapping[str, Any] = self._ask("GET", f"{self._model(name, version)}/config")
        return said

    def statistics(self, name: str, version: str, seconds: float) -> dict[str, Any]:
        """Return a model's statistics, as Triton's JSON has them."""
        path = self._model(name, version) if name else "/v2/models"
        said: dict[str, Any] = self._ask("GET", f"{path}/stats", seconds=seconds)
        return said

    def _ask(
        self, method: str, path: str, body: bytes = b"", seconds: float = ASK_SECONDS, kind: type = dict
    ) -> Any:
        headers = {**self.address.headers, "Content-Type": "application/json"}
        answer = self._talk(method, path, [body], headers).held(seconds)
        if answer.status != 200:
            raise error_of(self, answer)
        try:
            said = json.loads(answer.body)
        except (ValueError, RecursionError) as error:
            raise self._no_answer(path, str(error)) from error
        if not isinstance(said, kind):
            raise self._no_answer(path, f"expected JSON of a {kind.__name__}, got {type(said).__name__}")
        return said

    def _model(self, name: str, version: str) -> str:
        safe = f"%{PLAIN}" if self.server.startswith("triton") else PLAIN  # which undoes no quoting
        path = f"/v2/models/{quote(name, safe=safe)}"
        return f"{path}/versions/{quote(version, safe='')}" if version else path

    def _no_answer(self, path: str, why: str) -> RemoteError:
        what = f"the answer to {path} is not as the protocol says ({why}); is it a KServe v2 server?"
        return RemoteError(what, ErrorCode.INTERNAL)

    def _hang_up(self) -> None:
        self._connections.close()

    def _talk(self, method: str, path: str, body: Sequence[Any], headers: Mapping[str, str]) -> Conversation:
        return Conversation(self, self._connections, method, path, body, headers)


class HttpExchange:
    """A request that has one answer."""

    def __init__(self, link: HttpLink, conversation: Conversation) -> None:
        self._link = link
        self._conversation = conversation
        self._lost = ""

    def cancel(self, lost: str = "") -> None:
        """Give up; the connection is closed, which tells the server."""
        self._lost = lost
        self._conversation.end()

    def run(self) -> InferenceResponse:
        """Send it, and wait for the answer on this thread."""
        link = self._link
        link.begun(self)
        try:
            found: Answer | RemoteError = self._conversation.held(link.address.timeout)
        except RemoteError as error:
            found = error
        finally:
            link.over(self)
        return self._response(found)

    def _response(self, found: Answer | RemoteError) -> InferenceResponse:
        link = self._link
        if isinstance(found, RemoteError):
            return link.failed(link.cancelled(self._lost) if self._conversation.ended else found)
        if found.status != 200:
            return link.failed(error_of(link, found))
        try:
            return read_response(found.body, found.headers.get(_JSON_LENGTH.lower()))
        except AnswerError as error:
            return link.failed(RemoteError(f"{link.address}: {error}", ErrorCode.INTERNAL))

    def start(self, deliver: Deliver, in_thread: InThread) -> None:
        """Send it; its answer comes on the thread of all answers, or on one of its own."""
        self._link.begun(self)

        def over(found: Answer | RemoteError) -> None:
            self._link.over(self)
            deliver([self._response(found)], True)

        if not self._conversation.begun(over, in_thread):
            in_thread(lambda: deliver([self.run()], True))


def read_response(body: bytes | bytearray, length: str | None) -> InferenceResponse:
    """Return the response of a body; so many bytes of it are JSON, all where nothing is said.

    Raises
    ------
    AnswerError
        It is not what the protocol says.
    """
    view = memoryview(body)
    try:
        at = len(body) if length is None else int(length)
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


def error_of(link: HttpLink, answer: Answer) -> RemoteError:
    """Return the error that a server answered with."""
    status, body = answer.status, answer.body
    try:
        document = json.loads(body)
        words = document.get("error") or document.get("detail") or document.get("message")
    except (ValueError, AttributeError, RecursionError):
        words = None
    if words is None and status in (502, 503, 504):  # of what stands before the server
        return link.unanswered(f"HTTP {status}", True)
    text = words if isinstance(words, str) else " ".join(body[:300].decode("utf-8", "replace").split())
    return RemoteError(text or f"the server answered HTTP {status}", _CODES.get(status, ErrorCode.UNKNOWN))


HttpLink.waits = (Connections.opened, Conversation._exchanged, Answer.take)
