"""The HTTP routes of an endpoint: an ASGI application for the KServe v2 protocol with Triton's extensions.

Guarantees: every request gets an answer; no more of its body is read or decompressed than the limits allow; if
the client disconnects, its request runs to the end, as on Triton, unless responses to it are being written.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from bls_notebook.network.kserve import json_codec
from bls_notebook.network.kserve.errors import NOT_FOUND, UNSUPPORTED, ProtocolError, refuse
from bls_notebook.network.kserve.json_codec import member
from bls_notebook.network.kserve.request import DecodedRequest
from bls_notebook.network.kserve.shared_memory import Regions, RegionUse
from bls_notebook.network.limits import PATH_CHARACTERS
from bls_notebook.repository.config import to_json

from .admission import UNAUTHORIZED, Admission, Body, CountedRequest
from .generate import Events, decode_generate, generating, only_response
from .header_options import HeaderOptions, category_of
from .http_server import UNKNOWN_ENCODING, coding_of, packed, read_body, until_disconnect
from .served_models import ServedModels, in_thread, send, version_of, without_error
from .settings import LogSettings, TraceSettings, wrong_json_type

_JSON, _BINARY = "application/json", "application/octet-stream"

HttpHandler = Callable[[Request], Any]
"""Returns, perhaps awaitably, a `Response` or a document to send as JSON."""


class HttpApplication:
    """Answers HTTP requests about the models of a repository."""

    def __init__(
        self, models: ServedModels, regions: Regions, admission: Admission, settings: tuple[TraceSettings, LogSettings]
    ) -> None:
        self._models, self._regions, self._admission = models, regions, admission
        self._trace, self._log = settings
        self._router = Router(routes=self._routes(), redirect_slashes=False, default=_failed("Not Found", 404))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        began = False

        async def sent(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            if not self._admission.authorized(headers.get(b"authorization")):
                answer = _failed(UNAUTHORIZED, 401)
                answer.headers["www-authenticate"] = "Bearer"
                await answer(scope, receive, sent)
            elif len(scope["path"]) > PATH_CHARACTERS:
                await _failed(f"the path has more than {PATH_CHARACTERS:,} characters", 414)(scope, receive, sent)
            elif sum(len(key) + len(value) for key, value in scope["headers"]) > self._admission.limits.headers:
                await _failed("the headers are larger than the limit of this endpoint", 431)(scope, receive, sent)
            elif self._admission.is_foreign(_text(headers.get(b"host")), _text(headers.get(b"origin"))):
                await _failed("this endpoint without a token accepts only requests from programs on its machine", 403)(
                    scope, receive, sent
                )
            else:
                scope["path"] = scope["raw_path"].decode("ascii", "replace")  # Triton does not unquote paths
                scope.setdefault("state", {})["trusted"] = True
                bodies = scope["bodies"] = Body(self._admission), Body(self._admission)  # as sent, and unpacked
                try:
                    await self._router(scope, receive, sent)
                finally:
                    for body in bodies:
                        body.release()
        except ProtocolError as error:
            error.__traceback__ = None  # its frames have the future that raised it: a cycle, which would keep the body
            answer = _failed(error.message, error.status)
            if error.message == UNKNOWN_ENCODING:
                answer.headers["accept-encoding"] = "gzip, deflate"
            await answer(scope, receive, sent)
        except (ClientDisconnect, asyncio.CancelledError):
            raise
        except Exception as error:
            if began:
                raise
            error.__traceback__ = None
            await _failed(f"internal error of the endpoint: {type(error).__name__}: {error}", 500)(scope, receive, sent)

    def _routes(self) -> list[Route]:
        model = "/v2/models/{name}"
        region = "/v2/{kind:str}sharedmemory/region/{region}"
        table: list[tuple[str, str, HttpHandler]] = []
        for prefix in (model, model + "/versions/{version:int}"):
            table += [
                (f"{prefix}/infer", "POST", self._infer),
                (f"{prefix}/generate", "POST", self._generate),
                (f"{prefix}/generate_stream", "POST", self._generate_stream),
                (f"{prefix}/ready", "GET", self._model_ready),
                (f"{prefix}/config", "GET", lambda request: json.loads(to_json(self._model(request).spec.config))),
                (f"{prefix}/stats", "GET", self._statistics),
            ]
        table += [
            ("/v2/models/stats", "GET", self._statistics),
            *(
                (f"{model}{suffix}", "GET", lambda request: self._models.metadata(*_named(request)))
                for suffix in ("", "/versions/{version:int}")
            ),
            ("/v2/health/live", "GET", lambda request: Response()),
            ("/v2/health/ready", "GET", self._ready),
            ("/v2", "GET", lambda request: self._models.about()),
            ("/metrics", "GET", self._metrics),
            ("/v2/trace/setting", "GET POST", self._trace_settings),
            (f"{model}/trace/setting", "GET POST", self._trace_settings),
            ("/v2/logging", "GET POST", self._log_settings),
            ("/v2/repository/index", "POST", self._index),
            ("/v2/repository/{repository}/index", "POST", self._index),
            ("/v2/repository/models/{name}/load", "POST", self._load),
            ("/v2/repository/models/{name}/unload", "POST", self._unload),
            ("/v2/{kind:str}sharedmemory/status", "GET", self._regions_status),
            (f"{region}/status", "GET", self._regions_status),
            (f"{region}/register", "POST", self._register),
            (f"{region}/unregister", "POST", self._unregister),
            ("/v2/{kind:str}sharedmemory/unregister", "POST", self._unregister),
        ]
        return [
            Route(path, _RouteHandler(path, method, answer, self._admission.http)) for path, method, answer in table
        ]

    async def _infer(self, request: Request) -> Response:
        model = self._model(request)
        if model.decoupled:
            refuse("HTTP end point doesn't support models with decoupled transaction policy", UNSUPPORTED)
        body = await read_body(request, self._admission)
        length = request.headers.get(json_codec.JSON_LENGTH, None if body else "0")
        with CountedRequest(self._admission, model.name), closing(RegionUse(self._regions)) as regions:
            arguments = (
                model, _version(request), body, length, regions, request.scope["bodies"][1].add,
                self._admission.limits.http_input,
            )  # fmt: skip
            call = await self._admission.work(json_codec.effort_of(body, length), json_codec.decode_request, *arguments)
            if self._admission.http.pattern:
                call.parameters = self._admission.http.parameters(_decoded(request.scope)) | call.parameters
            response = without_error(await send(call))
            coding = coding_of(request)
            effort = call.effort_of(response)
            content, json_length = await self._admission.work(
                effort, json_codec.encode_response, call, response, regions
            )
            if coding:
                content = await self._admission.work(len(content), packed, content, coding)
        headers = {"content-encoding": coding} if coding else {}
        if json_length is None:
            return Response(content, 200, headers, _JSON)
        return Response(content, 200, {json_codec.JSON_LENGTH: str(json_length), **headers}, _BINARY)

    async def _generate(self, request: Request) -> Any:
        call = await self._decode_generate(request)
        with CountedRequest(self._admission, call.model.name):
            try:
                begun = asyncio.Event()
                work = asyncio.ensure_future(only_response(call, begun))
                response = without_error(await until_disconnect(request, work, begun))
                return await self._admission.work(*generating(call, response))
            except ProtocolError as error:  # generate answers every error of a model with status 400
                raise ProtocolError(error.message, origin=error.origin) from None

    async def _generate_stream(self, request: Request) -> Response:
        return Events(await self._decode_generate(request), self._admission)

    async def _decode_generate(self, request: Request) -> DecodedRequest:
        model = self._model(request)
        body = await read_body(request, self._admission)
        most = self._admission.limits.http_input
        return await self._admission.work(len(body), decode_generate, model, _version(request), body, most)

    async def _ready(self, request: Request) -> Response:
        return Response(status_code=200 if await in_thread(self._models.ready) else 400)

    async def _model_ready(self, request: Request) -> Response:
        ready = await in_thread(self._models.model_ready, *_named(request))  # a model's is_model_ready may be slow
        return Response() if ready else _failed("Model version not ready", 400)

    async def _statistics(self, request: Request) -> Any:
        return await in_thread(self._models.statistics, *_named(request))  # remote models query their servers

    async def _metrics(self, request: Request) -> Response:
        text = await in_thread(self._models.repository.metrics.text)
        return Response(text, media_type="text/plain; charset=utf-8")

    async def _trace_settings(self, request: Request) -> Any:
        name = request.path_params.get("name", "")
        if name:
            self._models.find(name)
        if request.method == "POST":
            document = await self._document(request, empty=False)
            self._trace.update(name, _trace_changes(document))
        return {key: value if key == "trace_level" else value[0] for key, value in self._trace.values(name).items()}

    async def _log_settings(self, request: Request) -> Any:
        if request.method == "POST":
            document = await self._document(request, empty=False)
            changes = document if isinstance(document, dict) else {}
            self._log.update({name: value for name, value in changes.items() if value is not None}, wrong_json_type)
        return self._log.values

    async def _index(self, request: Request) -> Any:
        document = await self._document(request)
        ready = document.get("ready", False) if isinstance(document, dict) else False
        if not isinstance(ready, bool):
            refuse("Invalid value for 'ready': expected a boolean")
        return await in_thread(self._models.index, ready)

    async def _load(self, request: Request) -> None:
        parameters: dict[str, str | bytes] = {}
        for name, value in _parameters(await self._document(request)).items():
            if name == "config":
                parameters[name] = member({name: value}, name, str, context="")
            elif name.startswith("file:"):
                try:
                    parameters[name] = base64.b64decode(member({name: value}, name, str, context=""), validate=True)
                except (binascii.Error, ValueError):
                    refuse(f"parameter '{name}': the content is not base64")
            else:
                refuse(f"unexpected load parameter '{name}'; expected config or file:<path>")
        await in_thread(self._models.load, request.path_params["name"], parameters)

    async def _unload(self, request: Request) -> None:
        dependents = _parameters(await self._document(request)).get("unload_dependents") is True
        await in_thread(self._models.unload, request.path_params["name"], dependents)

    async def _register(self, request: Request) -> None:
        self._regions.require_allowed()
        if _is_cuda(request):
            refuse("cuda shared memory is not supported by this endpoint; use system shared memory", UNSUPPORTED)
        document = await self._document(request, empty=False)
        for name in ("key", "byte_size"):
            if not isinstance(document, dict) or name not in document:
                refuse(f"Shared memory register request has no '{name}' field")
        offset = member(document, "offset", int, 0, "")
        key, size = member(document, "key", str, context=""), member(document, "byte_size", int, context="")
        self._regions.register(request.path_params["region"], key, offset, size)

    def _unregister(self, request: Request) -> None:
        self._regions.require_allowed()
        if not _is_cuda(request):
            self._regions.unregister(request.path_params.get("region", ""))

    def _regions_status(self, request: Request) -> Any:
        name = request.path_params.get("region", "")
        if not _is_cuda(request):
            return self._regions.status(name)
        if name:
            refuse(f"Unable to find cuda shared memory region: '{name}'", NOT_FOUND)
        return []

    def _model(self, request: Request) -> Any:
        return self._models.find(*_named(request))

    async def _document(self, request: Request, empty: bool = True) -> Any:
        """Return the JSON document of the body; {} for an empty body, if `empty` allows it."""
        body = await read_body(request, self._admission)
        json_codec.check_size(len(body), self._admission.limits.http_input)
        if not body and not empty:
            refuse("failed to parse the request JSON buffer: The document is empty. at 0")
        return await self._admission.work(len(body), json_codec.parsed, body) if body else {}


class _RouteHandler:
    """The ASGI application of one route: checks the method and the headers, and sends the answer."""

    def __init__(self, path: str, method: str, answer: HttpHandler, options: HeaderOptions) -> None:
        self._methods, self._answer, self._options = method.split(), answer, options
        self._category = category_of(path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        missing = self._options.required and self._options.missing(self._category, dict(_decoded(scope)))
        if missing:
            await _failed(f"This API is restricted, expecting header '{missing}'", 403)(scope, receive, send)
            return
        if scope["method"] not in self._methods:
            await _failed("Method Not Allowed", 405)(scope, receive, send)
            return
        answer = self._answer(Request(scope, receive, send))
        if asyncio.iscoroutine(answer):
            answer = await answer
        answer = b"" if answer is None else answer
        if not isinstance(answer, Response):
            answer = Response(answer if isinstance(answer, bytes) else json_codec.written(answer), media_type=_JSON)
        await answer(scope, receive, send)


def _decoded(scope: Scope) -> list[tuple[str, str]]:
    """Return the headers of a request, with names in lower case."""
    return [(_text(name), _text(value)) for name, value in scope["headers"]]


def _named(request: Request) -> tuple[str, str]:
    return request.path_params.get("name", ""), str(request.path_params.get("version", ""))


def _version(request: Request) -> int:
    return version_of(str(request.path_params.get("version", "")))


def _trace_changes(document: Any) -> dict[str, list[str]]:
    """Return the trace settings in a document; [] for those to be cleared. ProtocolError for a wrong type."""
    changes: dict[str, list[str]] = {}
    for name, value in document.items() if isinstance(document, dict) else ():
        if value is None:
            changes[name] = []
        elif name == "trace_level":
            levels = member(document, name, list, context="")
            changes[name] = [member({name: level}, name, str, context="") for level in levels]
        elif name in ("trace_rate", "trace_count", "log_frequency"):
            changes[name] = [member(document, name, str, context="")]
        elif name == "trace_file":
            changes[name] = [""]
    return changes


def _parameters(document: Any) -> dict[str, Any]:
    parameters = document.get("parameters", {}) if isinstance(document, dict) else {}
    return parameters if isinstance(parameters, dict) else refuse("attempt to get members for non-object")


def _is_cuda(request: Request) -> bool:
    kind = request.path_params["kind"]
    if kind not in ("system", "cuda"):
        refuse("Not Found", NOT_FOUND)
    return bool(kind == "cuda")


def _text(header: bytes | None) -> str:
    return (header or b"").decode("latin-1")


def _failed(message: str, status: int) -> Response:
    return Response(json_codec.written({"error": message}), status, media_type=_JSON)
