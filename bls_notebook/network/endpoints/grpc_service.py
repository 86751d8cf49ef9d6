"""The gRPC service of an endpoint: the KServe v2 protocol with Triton's extensions, on grpcio's asyncio server.

Guarantees: every message from a client gets a response or a status. The requests of a stream reach their models
in order. If a client disconnects, its requests are cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from functools import partial
from typing import Any, NoReturn, cast

import grpc
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from tritonclient.grpc import service_pb2 as pb

from bls_notebook.network.kserve import grpc_codec
from bls_notebook.network.kserve.errors import GRPC_STATUS, NOT_FOUND, UNAVAILABLE, UNSUPPORTED, ProtocolError, refuse
from bls_notebook.network.kserve.request import DecodedRequest
from bls_notebook.network.kserve.shared_memory import Regions, RegionUse
from bls_notebook.network.kserve.tensors import AnswerError
from bls_notebook.network.limits import METADATA_BYTES, Limits

from .admission import UNAUTHORIZED, Admission, Body, CountedRequest
from .grpc_stream import AnswerStream
from .header_options import category_of
from .served_models import ServedModels, in_thread, send, version_of, without_error
from .settings import LogSettings, TraceSettings, wrong_grpc_type

_STREAM = "ModelStreamInfer"
_SERVICE = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"]


class GrpcService(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers gRPC requests about the models of a repository."""

    def __init__(
        self, models: ServedModels, regions: Regions, admission: Admission, settings: tuple[TraceSettings, LogSettings]
    ) -> None:
        self._models, self._regions, self._admission = models, regions, admission
        self._trace, self._log = settings
        self._streams: dict[AnswerStream, asyncio.Task[Any]] = {}  # the oldest first
        # Each function takes the request message and returns, perhaps awaitably, the response or its fields as JSON.
        methods: dict[str, Callable[[Any], Any]] = {
            "ServerLive": lambda request: {"live": True},
            "ServerReady": self._ready,
            "ServerMetadata": lambda request: models.about(),
            "ModelReady": self._model_ready,
            "ModelMetadata": lambda request: models.metadata(request.name, request.version),
            "ModelConfig": lambda request: pb.ModelConfigResponse(
                config=models.find(request.name, request.version).spec.config
            ),
            "ModelStatistics": lambda request: in_thread(models.statistics, request.name, request.version),
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
            "SystemSharedMemoryStatus": lambda request: {
                "regions": {row["name"]: row for row in regions.status(request.name)}
            },
            "SystemSharedMemoryRegister": lambda request: regions.register(
                request.name, request.key, request.offset, request.byte_size
            ),
            "SystemSharedMemoryUnregister": lambda request: regions.unregister(request.name),
            "TraceSetting": self._trace_settings,
            "LogSettings": self._log_settings,
            "CudaSharedMemoryStatus": _cuda_status,
            "CudaSharedMemoryRegister": self._register_cuda,
            "CudaSharedMemoryUnregister": lambda request: regions.require_allowed(),
        }
        path = f"/{_SERVICE.full_name}/"
        self._handlers = {path + name: self._unary(name, answer) for name, answer in methods.items()}
        self._handlers[f"{path}ModelInfer"] = grpc.stream_unary_rpc_method_handler(_with_status(self._infer))
        self._handlers[path + _STREAM] = grpc.stream_stream_rpc_method_handler(_with_status(self._stream))
        self._handlers["/grpc.health.v1.Health/Check"] = grpc.unary_unary_rpc_method_handler(_healthy)
        self._categories = {path: category_of(path.rpartition("/")[2]) for path in self._handlers}

    def service(self, details: Any) -> Any:
        """Return the handler of an RPC; None if there is no such RPC."""
        authorization = next((value for key, value in details.invocation_metadata if key == "authorization"), None)
        if not self._admission.authorized(authorization):
            return _refusing(grpc.StatusCode.UNAUTHENTICATED, UNAUTHORIZED)
        options = self._admission.grpc
        if options.required and details.method in self._categories:
            missing = options.missing(self._categories[details.method], dict(details.invocation_metadata))
            if missing:
                text = f"This protocol is restricted, expecting header '{missing}'"
                return _refusing(grpc.StatusCode.UNAVAILABLE, text)
        return self._handlers.get(details.method)

    def _trace_settings(self, request: Any) -> Any:
        if request.model_name:
            self._models.find(request.model_name)
        if request.settings:
            self._trace.update(request.model_name, {name: list(s.value) for name, s in request.settings.items()})
        values = self._trace.values(request.model_name)
        return {"settings": {name: {"value": value} for name, value in values.items()}}

    def _log_settings(self, request: Any) -> Any:
        kinds = {"bool_param": bool, "uint32_param": int, "string_param": str}
        changes = {
            name: getattr(s, s.WhichOneof("parameter_choice") or "", None) for name, s in request.settings.items()
        }
        self._log.update(changes, wrong_grpc_type)
        fields = {kind: field for field, kind in kinds.items()}
        return {"settings": {name: {fields[type(value)]: value} for name, value in self._log.values.items()}}

    def _register_cuda(self, request: Any) -> NoReturn:
        self._regions.require_allowed()
        refuse("cuda shared memory is not supported by this endpoint; use system shared memory", UNSUPPORTED)

    async def _ready(self, request: Any) -> Any:
        return {"ready": await in_thread(self._models.ready)}

    async def _model_ready(self, request: Any) -> Any:
        return {"ready": await in_thread(self._models.model_ready, request.name, request.version)}

    async def _index(self, request: Any) -> Any:
        _refuse_repository(request)
        return {"models": await in_thread(self._models.index, request.ready)}

    async def _load(self, request: Any) -> None:
        _refuse_repository(request)
        parameters: dict[str, str | bytes] = {}
        for name in request.parameters:
            is_file = name.startswith("file:")
            if not is_file and name != "config":
                refuse(f"unexpected load parameter '{name}'; expected config or file:<path>")
            kind = "bytes_param" if is_file else "string_param"
            if request.parameters[name].WhichOneof("parameter_choice") != kind:
                refuse(f"invalid value type for load parameter '{name}', expected {kind}.")
            parameters[name] = getattr(request.parameters[name], kind)
        await in_thread(self._models.load, request.model_name, parameters)

    async def _unload(self, request: Any) -> None:
        _refuse_repository(request)
        dependents = "unload_dependents" in request.parameters and request.parameters["unload_dependents"].bool_param
        await in_thread(self._models.unload, request.model_name, dependents)

    def _unary(self, name: str, method_function: Callable[..., Any]) -> Any:
        method = _SERVICE.methods_by_name[name]
        request_class, response_class = GetMessageClass(method.input_type), GetMessageClass(method.output_type)

        async def respond(_: Any, context: Any) -> Any:
            data = await self._message(context)
            with Body(self._admission) as body:
                body.add(len(data))
                response = method_function(await self._admission.work(len(data), _parsed, request_class, data))
                if asyncio.iscoroutine(response):
                    response = await response
                if response is None or isinstance(response, dict):
                    response = ParseDict(response or {}, response_class())
                return response.SerializeToString()

        return grpc.stream_unary_rpc_method_handler(_with_status(respond))

    async def _message(self, context: Any) -> bytes:
        """Return the message of a unary call; ProtocolError if it does not arrive in time.

        grpcio's handlers of unary calls wait for it without a timeout.
        """
        task, patience = asyncio.current_task(), self._admission.limits.patience
        assert task is not None
        late = False

        def end() -> None:
            nonlocal late
            late = True
            task.cancel()

        timer = task.get_loop().call_later(patience, end)
        try:
            data: bytes = await context.read()
        except asyncio.CancelledError:
            if not late:
                raise
            refuse(f"the message did not arrive within {patience:g} s")
        finally:
            timer.cancel()
        return data if data is not grpc.aio.EOF else refuse("the call has no message")

    async def _infer(self, _: Any, context: Any) -> Any:
        data = await self._message(context)
        with Body(self._admission) as body:
            message, raws = await self._split(data, body)
            model = self._models.find(message.model_name, message.model_version)
            if model.decoupled:
                refuse("ModelInfer RPC doesn't support models with decoupled transaction policy", UNSUPPORTED)
            with CountedRequest(self._admission, model.name), closing(RegionUse(self._regions)) as regions:
                call = await self._decoded(model, message, raws, regions, body, context)
                response = without_error(await send(call))
                arguments = call, response, regions, None
                return await self._admission.work(call.effort_of(response), grpc_codec.encode_response, *arguments)

    async def _split(self, data: bytes, body: Body) -> Any:
        body.add(len(data))
        return await self._admission.work(grpc_codec.effort_of_parsing(data), _parsed, pb.ModelInferRequest, data)

    async def _decoded(
        self, model: Any, message: Any, raws: Any, regions: RegionUse, body: Body, context: Any
    ) -> DecodedRequest:
        arguments = model, version_of(message.model_version), message, raws, regions, body.add
        effort = grpc_codec.effort_of(message, raws)
        call: DecodedRequest = await self._admission.work(effort, grpc_codec.decode_request, *arguments)
        if self._admission.grpc.pattern:
            call.parameters |= self._admission.grpc.parameters(context.invocation_metadata())
        return call

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> None:
        answers = AnswerStream(context, self._admission)
        answers.writing = writing = asyncio.ensure_future(answers.write())
        self._make_room(answers)
        writing.add_done_callback(partial(_end_at_error, self._streams[answers]))
        try:
            async for data in requests:
                await self._send_streamed(data, answers, context)
                await answers.room()
            answers.end()
            await writing
        except asyncio.CancelledError:
            if writing.done() and not writing.cancelled() and isinstance(error := writing.exception(), ProtocolError):
                raise error from None
            if answers in self._streams:
                raise
            idle = "the stream was idle, and others needed its place"
            refuse("the endpoint was stopped" if answers.has_ended else idle, UNAVAILABLE)
        finally:  # also if the client has disconnected
            self._streams.pop(answers, None)
            writing.cancel()
            answers.close()

    def end_streams(self) -> None:
        """End the streams whose requests have been answered, once the responses are written; cancel the others."""
        for answers, task in list(self._streams.items()):
            del self._streams[answers]
            answers.end()
            if answers.writing is None or answers.is_busy:
                task.cancel()
            else:
                answers.writing.add_done_callback(partial(_cancel, task))

    def _make_room(self, answers: AnswerStream) -> None:
        """Add a stream; end the oldest idle one if streams take half of the calls in flight."""
        if len(self._streams) >= max(1, self._admission.limits.requests // 2):
            oldest = next((stream for stream in self._streams if stream.idle), None)
            if oldest is not None:
                self._streams.pop(oldest).cancel()
        task = asyncio.current_task()
        assert task is not None
        self._streams[answers] = task

    async def _send_streamed(self, data: bytes, answers: AnswerStream, context: Any) -> None:
        """Send a request of a stream before the next one is read, so that requests keep their order."""
        body, regions = Body(self._admission), RegionUse(self._regions)
        request_id = ""
        try:
            message, raws = await self._split(data, body)
            request_id = message.id
            model = self._models.find(message.model_name, message.model_version)
            self._admission.enter()
            try:
                call = await self._decoded(model, message, raws, regions, body, context)
                answers.sent(call, send(call, stream=True), body, regions)
            except BaseException as error:
                self._admission.leave(model.name, error)
                raise
        except BaseException as error:
            body.release()
            regions.close()
            if not isinstance(error, ProtocolError):
                raise
            answers.refused(request_id, error.with_traceback(None))


def _end_at_error(task: asyncio.Task[Any], writing: asyncio.Future[None]) -> None:
    if not writing.cancelled() and isinstance(writing.exception(), ProtocolError):
        task.cancel()


def _cancel(task: asyncio.Task[Any], _: object) -> None:
    task.cancel()


def _refuse_repository(request: Any) -> None:
    if request.repository_name:
        refuse("'repository_name' specification is not supported", UNSUPPORTED)


def _cuda_status(request: Any) -> Any:
    if request.name:
        refuse(f"Unable to find cuda shared memory region: '{request.name}'", NOT_FOUND)
    return {}


def _parsed(message_class: Any, data: bytes) -> Any:
    """Parse a message. grpcio's own parser would answer UNKNOWN to a damaged one, and log a traceback."""
    try:
        if message_class is pb.ModelInferRequest:
            return grpc_codec.split_message(message_class, data, grpc_codec.RAW_INPUTS)
        grpc_codec.check_parts(data)
        return message_class.FromString(data)
    except (AnswerError, DecodeError) as error:
        reason = f": {error}" if isinstance(error, AnswerError) and "many" in str(error) else ""
        refuse(f"cannot parse the request: {len(data)} bytes are not a {message_class.DESCRIPTOR.name} message{reason}")


def _with_status(behaviour: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Wrap the behaviour of an RPC so that its exceptions become gRPC statuses."""

    async def answer(request: Any, context: Any) -> Any:
        try:
            return await behaviour(request, context)
        except ProtocolError as error:
            error.__traceback__ = None  # its frames have the future that raised it: a cycle, which would keep the body
            status, message = getattr(grpc.StatusCode, GRPC_STATUS[error.code]), error.message
        except Exception as error:
            if isinstance(error, grpc.aio.AbortError):
                raise
            error.__traceback__ = None
            status = grpc.StatusCode.INTERNAL
            message = f"internal error of the endpoint: {type(error).__name__}: {error}"
        return await context.abort(status, message)

    return answer


def _refusing(status: Any, text: str) -> Any:
    async def refuse_call(requests: Any, context: Any) -> None:
        await context.abort(status, text)

    return grpc.stream_stream_rpc_method_handler(refuse_call)


async def _healthy(request: bytes, context: Any) -> bytes:
    return b"\x08\x01"  # HealthCheckResponse: SERVING


def grpc_server(front: GrpcService, limits: Limits) -> Any:
    """Return a gRPC server for the running event loop, without ports yet."""
    server = grpc.aio.server(
        options=[
            ("grpc.so_reuseport", 0),  # a port in use is an error
            ("grpc.max_receive_message_length", min(limits.body, (1 << 31) - 1)),
            ("grpc.max_send_message_length", -1),
            # gRPC enforces this only after the client has acknowledged it. No option limits the others' 16 MB.
            ("grpc.max_metadata_size", min(limits.headers, METADATA_BYTES)),
            ("grpc.max_concurrent_streams", limits.requests),
            ("grpc.server.max_pending_requests", 4 * limits.requests),  # gRPC drops others at random: honest ones too
            ("grpc.server.max_pending_requests_hard_limit", 4 * limits.requests),
            ("grpc.max_allowed_incoming_connections", limits.connections),
            ("grpc.max_connection_idle_ms", int(limits.patience * 1000)),  # clients connect again by themselves
            ("grpc.server_handshake_timeout_ms", int(limits.patience * 1000)),
        ],
        # Above the limit of requests, because an idle stream ends only after a new one was accepted.
        maximum_concurrent_rpcs=4 * limits.requests,
    )
    server.add_generic_rpc_handlers((front,))
    return cast(Any, server)
