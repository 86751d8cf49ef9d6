"""The HTTP half: the KServe v2 protocol with Triton's extensions, an ASGI application.

Guarantees: whatever a client sends gets an answer, and no more is read or unpacked of it than the limits
allow; a client that goes away takes its request with it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from bls_notebook.network.kserve.errors import NOT_FOUND, UNSUPPORTED, ProtocolError, refuse
from bls_notebook.network.kserve.json_codec import LENGTH, decode_request, encode_response, member, parsed, written
from bls_notebook.network.kserve.request import DecodedRequest
from bls_notebook.network.kserve.shared_memory import Regions
from bls_notebook.pb_utils import InferenceResponse

from .admission import UNAUTHORIZED, Admission, CountedRequest
from .elsewhere import elsewhere
from .generate import ONE_RESPONSE, generated, generating
from .http_events import Events, responses
from .http_exchange import UNKNOWN_ENCODING, GoneError, TooLargeError, packed, read, unpacked, while_there
from .models import ServedModels, config_json, version_of
from .sending import answered, send, send_stream
from .settings import LOG, TRACE, unchanged

_JSON, _BINARY = "application/json", "application/octet-stream"

Answer = Callable[[Request], Awaitable[Response]]


class HttpFront:
    """Answers HTTP requests about the models of a repository."""

    def __init__(self, models: ServedModels, regions: Regions, admission: Admission) -> None:
        self._models, self._regions, self._admission = models, regions, admission
        self._router = Router(routes=[*self._routes()], redirect_slashes=False, default=_not_found)

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
            elif sum(len(key) + len(value) for key, value in scope["headers"]) > self._admission.limits.headers:
                await _failed("the headers are larger than this endpoint takes", 431)(scope, receive, sent)
            elif self._admission.is_foreign(_text(headers.get(b"host")), _text(headers.get(b"origin"))):
                await _failed("this endpoint answers programs of its own machine alone", 403)(scope, receive, sent)
            else:
                await self._router(scope, receive, sent)
        except ProtocolError as error:
            answer = _failed(error.message, error.status)
            if error.message == UNKNOWN_ENCODING:
                answer.headers["accept-encoding"] = "gzip, deflate"
            await answer(scope, receive, sent)
        except (GoneError, asyncio.CancelledError):
            raise
        except Exception as error:
            if began:
                raise
            await _failed(f"internal error of the endpoint: {type(error).__name__}: {error}", 500)(scope, receive, sent)

    def _routes(self) -> list[Route]:
        model = "/v2/models/{name}"
        both = (model, model + "/versions/{version:int}")
        region = "/v2/{kind:str}sharedmemory/region/{region}"
        table: list[tuple[str, Mapping[str, Answer]]] = []
        for start in both:
            table += [
                (f"{start}/infer", {"POST": self._infer}),
                (f"{start}/generate", {"POST": self._generate}),
                (f"{start}/generate_stream", {"POST": self._generate_stream}),
                (f"{start}/ready", {"GET": self._model_ready}),
                (f"{start}/config", {"GET": self._config}),
                (f"{start}/stats", {"GET": self._statistics}),
                (f"{start}/trace/setting", {"GET": self._trace, "POST": self._trace}),
            ]
        table += [
            ("/v2/models/stats", {"GET": self._statistics}),
            *((start, {"GET": self._metadata}) for start in both),
            ("/v2/health/live", {"GET": self._live}),
            ("/v2/health/ready", {"GET": self._ready}),
            ("/v2", {"GET": self._about}),
            ("/metrics", {"GET": self._metrics}),
            ("/v2/repository/index", {"POST": self._index}),
            ("/v2/repository/{repository}/index", {"POST": self._index}),
            ("/v2/repository/models/{name}/load", {"POST": self._load}),
            ("/v2/repository/models/{name}/unload", {"POST": self._unload}),
            ("/v2/{kind:str}sharedmemory/status", {"GET": self._regions_status}),
            (f"{region}/status", {"GET": self._regions_status}),
            (f"{region}/register", {"POST": self._register}),
            (f"{region}/unregister", {"POST": self._unregister}),
            ("/v2/{kind:str}sharedmemory/unregister", {"POST": self._unregister}),
            ("/v2/trace/setting", {"GET": self._trace, "POST": self._trace}),
            ("/v2/logging", {"GET": self._logging, "POST": self._logging}),
        ]
        return [Route(path, _Methods(answers)) for path, answers in table]

    # -- inference ---------------------------------------------------------------------------------

    async def _infer(self, request: Request) -> Response:
        model = self._model(request)
        if model.decoupled:
            refuse("HTTP end point doesn't support models with decoupled transaction policy", UNSUPPORTED)
        body = await self._body(request)
        length = request.headers.get(LENGTH)
        if not body and length is None:
            length = "0"
        with CountedRequest(self._admission, model.name):
            call = decode_request(model, _version(request), body, length, self._regions)
            response = answered(await while_there(request, send(call)))
            content, json_length = encode_response(call, response, self._regions)
        if json_length is None:
            return packed(request, Response(content, 200, media_type=_JSON))
        return packed(request, Response(content, 200, {LENGTH: str(json_length)}, _BINARY))

    async def _generate(self, request: Request) -> Response:
        call = await self._generating(request)
        with CountedRequest(self._admission, call.model.name):
            work = asyncio.ensure_future(self._one_of(call))
            try:
                return _json(generated(call, answered(await while_there(request, work))))
            except ProtocolError as error:  # whatever a model says here is 400
                raise ProtocolError(error.message, origin=error.origin) from None

    async def _one_of(self, call: DecodedRequest) -> InferenceResponse:
        """The response to a call, which has to be the only one."""
        found = []
        async with aclosing(responses(send_stream(call))) as each:
            async for response in each:
                found.append(response)
                if len(found) > 1:
                    break
        return found[0] if len(found) == 1 else refuse(ONE_RESPONSE)

    async def _generate_stream(self, request: Request) -> Response:
        call = await self._generating(request)
        return Events(call, self._admission)

    async def _generating(self, request: Request) -> DecodedRequest:
        model = self._model(request)
        return generating(model, _version(request), await self._body(request))

    # -- health, metadata, statistics --------------------------------------------------------------

    async def _live(self, request: Request) -> Response:
        return Response()

    async def _ready(self, request: Request) -> Response:
        return Response(status_code=200 if self._models.ready() else 400)

    async def _model_ready(self, request: Request) -> Response:
        name, version = _named(request)
        ready = await elsewhere(self._models.model_ready, name, version)  # which may ask the model
        return Response() if ready else _failed("Model version not ready", 400)

    async def _about(self, request: Request) -> Response:
        return _json(self._models.about())

    async def _metadata(self, request: Request) -> Response:
        return _json(self._models.metadata(*_named(request)))

    async def _config(self, request: Request) -> Response:
        return Response(config_json(self._model(request)), media_type=_JSON)

    async def _statistics(self, request: Request) -> Response:
        name, version = request.path_params.get("name", ""), str(request.path_params.get("version", ""))
        rows = await elsewhere(self._models.statistics, name, version)  # which may ask other servers
        return _json({"model_stats": rows})

    async def _metrics(self, request: Request) -> Response:
        text = await elsewhere(self._models.repository.metrics.text)
        return Response(text, media_type="text/plain; charset=utf-8")

    # -- the repository ----------------------------------------------------------------------------

    async def _index(self, request: Request) -> Response:
        found = await self._object(request)
        return _json(self._models.index(member(found, "ready", bool, False, "")))

    async def _load(self, request: Request) -> Response:
        found = await self._object(request)
        parameters: dict[str, str | bytes] = {}
        for name, value in _parameters(found).items():
            if name == "config":
                parameters[name] = member({name: value}, name, str, what="")
            elif name.startswith("file:"):
                try:
                    parameters[name] = base64.b64decode(member({name: value}, name, str, what=""), validate=True)
                except (binascii.Error, ValueError):
                    refuse(f"parameter '{name}': the content is not base64")
            else:
                refuse(f"unexpected parameter '{name}'; a model is loaded with config and file:<path> alone")
        await elsewhere(self._models.load, request.path_params["name"], parameters)
        return _json(None)

    async def _unload(self, request: Request) -> Response:
        given = _parameters(await self._object(request))
        dependents = given.get("unload_dependents") is True
        await elsewhere(self._models.unload, request.path_params["name"], dependents)
        return _json(None)

    # -- shared memory -----------------------------------------------------------------------------

    async def _register(self, request: Request) -> Response:
        _only_system(request)
        found = await self._object(request, empty=False)
        for name in ("key", "byte_size"):
            if not isinstance(found, dict) or name not in found:
                refuse(f"Shared memory register request has no '{name}' field")
        offset = member(found, "offset", int, 0, "")
        key, size = member(found, "key", str, what=""), member(found, "byte_size", int, what="")
        self._regions.register(request.path_params["region"], key, offset, size)
        return _json(None)

    async def _unregister(self, request: Request) -> Response:
        if request.path_params["kind"] == "system":
            self._regions.unregister(request.path_params.get("region", ""))
        elif request.path_params["kind"] != "cuda":
            return _failed("Not Found", 404)
        return _json(None)

    async def _regions_status(self, request: Request) -> Response:
        kind, name = request.path_params["kind"], request.path_params.get("region", "")
        if kind == "system":
            return _json(self._regions.status(name))
        if kind != "cuda":
            return _failed("Not Found", 404)
        if name:
            refuse(f"Unable to find cuda shared memory region: '{name}'", NOT_FOUND)
        return _json([])

    # -- settings ----------------------------------------------------------------------------------

    async def _trace(self, request: Request) -> Response:
        name = request.path_params.get("name")
        if name is not None and not self._models.host.versions(name):
            refuse(f"Request for unknown model : {name}")
        return _json(unchanged(TRACE, await self._changes(request)))

    async def _logging(self, request: Request) -> Response:
        return _json(unchanged(LOG, await self._changes(request)))

    async def _changes(self, request: Request) -> Mapping[str, Any]:
        found = await self._object(request, empty=False) if request.method == "POST" else {}
        return found if isinstance(found, dict) else refuse("attempt to get members for non-object")

    # -- bodies ------------------------------------------------------------------------------------

    def _model(self, request: Request) -> Any:
        return self._models.find(*_named(request))

    async def _object(self, request: Request, empty: bool = True) -> Any:
        """What the body says; an empty one nothing, where that is allowed."""
        body = await self._body(request)
        if not body and not empty:
            refuse("failed to parse the request JSON buffer: The document is empty. at 0")
        return parsed(body) if body else {}

    async def _body(self, request: Request) -> bytes | bytearray:
        """Read the body, unpacked, within the limits."""
        limits, given = self._admission.limits, request.headers.get("content-length", "")
        if given.isdigit() and (len(given) > 18 or int(given) > limits.body):
            raise TooLargeError(limits.body)
        try:
            packed = await asyncio.wait_for(read(request.receive, limits.body), limits.patience)
        except asyncio.TimeoutError:
            raise ProtocolError(f"the body was not there within {limits.patience:g} s") from None
        return unpacked(packed, request.headers.get("content-encoding", "identity"), limits.body)


class _Methods:
    """The answers of one path, by method."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._answers.get(scope["method"])
        if answer is None:
            await _failed("Method Not Allowed", 405)(scope, receive, send)
            return
        await (await answer(Request(scope, receive, send)))(scope, receive, send)


def _named(request: Request) -> tuple[str, str]:
    return request.path_params["name"], str(request.path_params.get("version", ""))


def _version(request: Request) -> int:
    return version_of(str(request.path_params.get("version", "")))


def _parameters(found: Any) -> dict[str, Any]:
    given = found.get("parameters", {}) if isinstance(found, dict) else {}
    return given if isinstance(given, dict) else refuse("attempt to get members for non-object")


def _only_system(request: Request) -> None:
    kind = request.path_params["kind"]
    if kind == "cuda":
        refuse("cuda shared memory is not supported by this endpoint; use system shared memory", UNSUPPORTED)
    if kind != "system":
        refuse("Not Found", NOT_FOUND)


def _text(header: bytes | None) -> str:
    return (header or b"").decode("latin-1")


def _json(answer: Any) -> Response:
    return Response(b"" if answer is None else written(answer), media_type=_JSON)


def _failed(message: str, status: int) -> Response:
    return Response(written({"error": message}), status, media_type=_JSON)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await _failed("Not Found", 404)(scope, receive, send)
