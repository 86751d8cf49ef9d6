"""The gRPC half: the service of the KServe v2 protocol with Triton's extensions, on gRPC's own server.

Guarantees: whatever a client sends gets an answer or a status; the requests of a stream reach their models in
the order in which they came; a client that goes away takes its requests with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

import grpc
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from bls_notebook.network.kserve.errors import GRPC_STATUS, NOT_FOUND, UNSUPPORTED, ProtocolError, refuse
from bls_notebook.network.kserve.grpc_codec import decode_request, encode_response
from bls_notebook.network.kserve.request import DecodedRequest
from bls_notebook.network.kserve.shared_memory import Regions

from .admission import UNAUTHORIZED, Admission, CountedRequest
from .elsewhere import elsewhere
from .grpc_stream import AnswerStream
from .models import ServedModels, version_of
from .sending import answered, send, send_stream
from .settings import LOG, TRACE, unchanged

_METADATA = 64 << 10  # bytes


class InferenceService(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Answers gRPC requests about the models of a repository."""

    def __init__(self, models: ServedModels, regions: Regions, admission: Admission) -> None:
        self._models, self._regions, self._admission = models, regions, admission

    # -- health, metadata, statistics --------------------------------------------------------------

    async def ServerLive(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's names, here and below
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.ServerReadyResponse(ready=self._models.ready())

    async def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        ready = await elsewhere(self._models.model_ready, request.name, request.version)
        return pb.ModelReadyResponse(ready=ready)

    async def ServerMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.ServerMetadataResponse(**self._models.about())

    async def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.ModelMetadataResponse(**self._models.metadata(request.name, request.version))

    async def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.ModelConfigResponse(config=self._models.find(request.name, request.version).spec.config)

    async def ModelStatistics(self, request: Any, context: Any) -> Any:  # noqa: N802
        rows = await elsewhere(self._models.statistics, request.name, request.version)
        return json_format.ParseDict({"model_stats": rows}, pb.ModelStatisticsResponse())

    # -- the repository ----------------------------------------------------------------------------

    async def RepositoryIndex(self, request: Any, context: Any) -> Any:  # noqa: N802
        _no_repository(request)
        return pb.RepositoryIndexResponse(models=self._models.index(request.ready))

    async def RepositoryModelLoad(self, request: Any, context: Any) -> Any:  # noqa: N802
        _no_repository(request)
        parameters: dict[str, str | bytes] = {}
        for name in request.parameters:
            is_file = name.startswith("file:")
            if not is_file and name != "config":
                refuse(f"unexpected parameter '{name}'; a model is loaded with config and file:<path> alone")
            kind = "bytes_param" if is_file else "string_param"
            if request.parameters[name].WhichOneof("parameter_choice") != kind:
                refuse(f"invalid value type for load parameter '{name}', expected {kind}.")
            parameters[name] = getattr(request.parameters[name], kind)
        await elsewhere(self._models.load, request.model_name, parameters)
        return pb.RepositoryModelLoadResponse()

    async def RepositoryModelUnload(self, request: Any, context: Any) -> Any:  # noqa: N802
        _no_repository(request)
        dependents = "unload_dependents" in request.parameters and (request.parameters["unload_dependents"].bool_param)
        await elsewhere(self._models.unload, request.model_name, dependents)
        return pb.RepositoryModelUnloadResponse()

    # -- shared memory -----------------------------------------------------------------------------

    async def SystemSharedMemoryStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        found = self._regions.status(request.name)
        return pb.SystemSharedMemoryStatusResponse(
            regions={row["name"]: pb.SystemSharedMemoryStatusResponse.RegionStatus(**row) for row in found}
        )

    async def SystemSharedMemoryRegister(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._regions.register(request.name, request.key, request.offset, request.byte_size)
        return pb.SystemSharedMemoryRegisterResponse()

    async def SystemSharedMemoryUnregister(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._regions.unregister(request.name)
        return pb.SystemSharedMemoryUnregisterResponse()

    async def CudaSharedMemoryStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.name:
            refuse(f"Unable to find cuda shared memory region: '{request.name}'", NOT_FOUND)
        return pb.CudaSharedMemoryStatusResponse()

    async def CudaSharedMemoryRegister(self, request: Any, context: Any) -> Any:  # noqa: N802
        refuse("cuda shared memory is not supported by this endpoint; use system shared memory", UNSUPPORTED)

    async def CudaSharedMemoryUnregister(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.CudaSharedMemoryUnregisterResponse()

    # -- settings ----------------------------------------------------------------------------------

    async def TraceSetting(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.model_name and not self._models.host.versions(request.model_name):
            refuse(f"Request for unknown model : {request.model_name}")
        answer = pb.TraceSettingResponse()
        for name, value in unchanged(TRACE, request.settings).items():
            answer.settings[name].value.extend(value if isinstance(value, list) else [value])
        return answer

    async def LogSettings(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = pb.LogSettingsResponse()
        for name, value in unchanged(LOG, request.settings).items():
            kind = {bool: "bool_param", int: "uint32_param", str: "string_param"}[type(value)]
            setattr(answer.settings[name], kind, value)
        return answer

    # -- inference ---------------------------------------------------------------------------------

    async def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        model = self._models.find(request.model_name, request.model_version)
        if model.decoupled:
            refuse("ModelInfer RPC doesn't support models with decoupled transaction policy", UNSUPPORTED)
        with CountedRequest(self._admission, model.name):
            call = decode_request(model, version_of(request.model_version), request, self._regions)
            response = answered(await send(call))
            return encode_response(pb, call, response, self._regions)

    async def ModelStreamInfer(self, requests: AsyncIterator[Any], context: Any) -> None:  # noqa: N802
        answers = AnswerStream(context, self._regions, self._admission)
        writing = asyncio.ensure_future(answers.write())
        try:
            async for request in requests:
                try:
                    answers.sent(*self._begun(request))
                except ProtocolError as error:
                    answers.refused(request.id, error)
                await answers.room()
            answers.end()
            await writing
        finally:  # also where the client has gone
            writing.cancel()
            answers.close()

    def _begun(self, request: Any) -> tuple[DecodedRequest, Any]:
        """Send a request of a stream; at once, so that they arrive in order."""
        model = self._models.find(request.model_name, request.model_version)
        self._admission.enter()
        try:
            call = decode_request(model, version_of(request.model_version), request, self._regions)
            return call, send_stream(call)
        except BaseException as error:
            self._admission.leave()
            self._admission.count(model.name, error)
            raise


def _no_repository(request: Any) -> None:
    if request.repository_name:
        refuse("'repository_name' specification is not supported", UNSUPPORTED)


class _Door(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The calls there are; each is asked for the token, and what is refused becomes a status.

    It is where the generated code registers its handlers, as it would with a server.
    """

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._open: dict[str, Any] = {}  # by the path of a call
        self._closed: dict[str, Any] = {}  # for those without the token

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """The same handlers again, in a form without names."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Take the handlers of a service, by the names of its calls."""
        for name, handler in handlers.items():
            parse = handler.request_deserializer or bytes
            if handler.request_streaming:
                answer = _told(handler.stream_stream, partial(_every, parse))
                made = grpc.stream_stream_rpc_method_handler
            else:
                answer = _told(handler.unary_unary, partial(_message, parse))
                made = grpc.unary_unary_rpc_method_handler
            self._open[f"/{service}/{name}"] = made(answer, None, handler.response_serializer)
            self._closed[f"/{service}/{name}"] = made(_unauthorized)

    def service(self, details: Any) -> Any:
        """Return the handler of a call, None where there is no such call."""
        given = next((value for key, value in details.invocation_metadata if key == "authorization"), None)
        known = self._open if self._admission.authorized(given) else self._closed
        return known.get(details.method)


async def _unauthorized(request: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, UNAUTHORIZED)


def _message(parse: Callable[[bytes], Any], data: bytes) -> Any:
    """A message of its bytes; gRPC itself would answer UNKNOWN where they are none, and log a traceback."""
    try:
        return parse(data)
    except DecodeError:
        refuse(f"the {len(data)} bytes that came are no message of this call")


async def _every(parse: Callable[[bytes], Any], requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    async for data in requests:
        yield _message(parse, data)


def _told(behaviour: Callable[..., Awaitable[Any]], read: Callable[[Any], Any]) -> Callable[..., Awaitable[Any]]:
    async def answer(request: Any, context: Any) -> Any:
        try:
            return await behaviour(read(request), context)
        except ProtocolError as error:
            status, message = getattr(grpc.StatusCode, GRPC_STATUS[error.code]), error.message
        except Exception as error:
            if isinstance(error, grpc.aio.AbortError):
                raise
            status = grpc.StatusCode.INTERNAL
            message = f"internal error of the endpoint: {type(error).__name__}: {error}"
        return await context.abort(status, message)

    return answer


async def _healthy(request: bytes, context: Any) -> bytes:
    return b"\x08\x01"  # HealthCheckResponse: SERVING


def grpc_server(service: InferenceService, admission: Admission) -> Any:
    """Return a server of a running event loop, which listens nowhere yet."""
    limits = admission.limits
    server = grpc.aio.server(
        options=[
            ("grpc.so_reuseport", 0),  # a port that is taken is an error
            ("grpc.max_receive_message_length", min(limits.body, (1 << 31) - 1)),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_metadata_size", min(limits.headers, _METADATA)),
            ("grpc.max_concurrent_streams", limits.requests),
        ],
        maximum_concurrent_rpcs=limits.requests,
    )
    door = _Door(admission)
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(service, door)
    health = grpc.unary_unary_rpc_method_handler(_healthy)
    door.add_registered_method_handlers("grpc.health.v1.Health", {"Check": health})
    server.add_generic_rpc_handlers((door,))
    return cast(Any, server)
