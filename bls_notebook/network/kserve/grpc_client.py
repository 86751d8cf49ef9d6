"""The gRPC client, built on grpcio and tritonclient's messages.

Requests and queries are futures. Their senders wait outside grpcio, because Ctrl-C inside its code would lose the lock
of the channel. A decoupled request reads its stream on a worker thread.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
from grpc.experimental import ChannelOptions
from tritonclient.grpc import service_pb2, service_pb2_grpc

from bls_notebook.backends import Deliver, InThread
from bls_notebook.engine import CtrlC, ForkedError, Parker
from bls_notebook.network.limits import ANSWER_BYTES, INFER_BYTES, QUERY_SECONDS
from bls_notebook.pb_utils import InferenceRequest
from bls_notebook.pb_utils.errors import ErrorCode, TritonError
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.records import MAX_CONFIG, read_file

from .address import Address
from .client import RETRIES, Client, ServerError
from .errors import GRPC_STATUS
from .grpc_codec import decode_response, decode_streamed, encode_request
from .request import headers_of
from .tensors import AnswerError

_LINGER = 0.05  # seconds
_SERVICE = "/inference.GRPCInferenceService/"
_MOST_BYTES = json.dumps({"methodConfig": [
    {"name": [{"service": _SERVICE.strip("/")}], "maxResponseMessageBytes": ANSWER_BYTES},
    {"name": [{"service": _SERVICE.strip("/"), "method": f"Model{kind}Infer"} for kind in ("", "Stream")]},
]})  # fmt: skip
_OPTIONS = (
    ("grpc.max_send_message_length", INFER_BYTES),
    ("grpc.max_receive_message_length", INFER_BYTES),
    (ChannelOptions.SingleThreadedUnaryStream, 1),
    ("grpc.service_config", _MOST_BYTES),
    ("grpc.use_local_subchannel_pool", 1),  # else a closed channel could leave its connection open
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.min_reconnect_backoff_ms", 5000),  # also the timeout of an attempt to connect
)
_CODES = {getattr(grpc.StatusCode, status): code for code, status in GRPC_STATUS.items()}
# gRPC uses UNAVAILABLE both for a lost server and for an unavailable model; only the text distinguishes them.
_NOT_SENT = re.compile(
    r"failed to connect|connections to all backends failing|name resolution|DNS |errors resolving", re.I
)
_LOST = re.compile(
    r"socket closed|connection reset|goaway|stream removed|broken pipe|end of tcp stream|endpoint clos|"
    r"transport|recvmsg|sendmsg|keepalive|ping timeout|rst_stream|http2 header with status: (502|503|504)|"
    r"cancelling all calls|shutting down|connection (aborted|timed out|refused)|too_many_pings|eof",
    re.I,
)
_WHY = re.compile(r".*?(?:Failed to connect to remote host|connect): ?", re.S | re.I)


_QUERIES: dict[str, tuple[str, Callable[..., Any]]] = {
    "live": ("ServerLive", service_pb2.ServerLiveRequest),
    "ready": ("ModelReady", service_pb2.ModelReadyRequest),
    "server": ("ServerMetadata", service_pb2.ServerMetadataRequest),
    "index": ("RepositoryIndex", service_pb2.RepositoryIndexRequest),
    "model": ("ModelMetadata", service_pb2.ModelMetadataRequest),
    "config": ("ModelConfig", service_pb2.ModelConfigRequest),
    "statistics": ("ModelStatistics", service_pb2.ModelStatisticsRequest),
}


_process = 0  # the one that used gRPC first


def check_process() -> None:
    """Raise ForkedError in a child of a process that used gRPC, where gRPC would hang or crash."""
    global _process
    _process = _process or os.getpid()
    if _process != os.getpid():
        raise ForkedError(
            "gRPC does not work in a process that was forked from one that uses gRPC; start it by multiprocessing's "
            "'spawn' method, or connect over http://"
        )


class GrpcClient(Client):
    """A connection over gRPC."""

    def __init__(self, address: Address) -> None:
        check_process()
        super().__init__(address)
        self._credentials: Any = None
        if address.encrypted:
            tls = address.tls
            files = (tls.root_certificates, tls.private_key, tls.certificate_chain)
            self._credentials = grpc.ssl_channel_credentials(*(f and read_file(f, MAX_CONFIG) for f in files))
        self.metadata_of_all = tuple((name.lower(), value) for name, value in address.headers.items())
        self.more = threading.Event()  # set when an awaited request is sent
        self._open()

    def linger(self) -> None:
        """Keep grpcio's callback thread alive briefly, so that the next request does not start a new one."""
        if not self._under_way:
            self.more.clear()
            if not self._under_way:  # checked again after `clear`
                self.more.wait(_LINGER)

    def _open(self) -> None:
        address, options = self.address, list(_OPTIONS)
        if address.host in ("127.0.0.1", "localhost", "::1"):
            options.append(("grpc.enable_http_proxy", 0))
        if self._credentials is not None:
            self._channel = grpc.secure_channel(address.target, self._credentials, options)
        else:
            self._channel = grpc.insecure_channel(address.target, options)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        # No serializers: the messages are already bytes.
        self.infer = self._channel.unary_unary(_SERVICE + "ModelInfer")
        self.stream = self._channel.unary_stream(_SERVICE + "ModelStreamInfer")

    def _reconnect(self) -> None:
        old_channel = self._channel
        self._open()
        old_channel.close()
        if self.closed:  # by another thread meanwhile
            self._channel.close()

    def exchange(self, name: str, version: str, request: InferenceRequest, all_outputs: bool) -> GrpcExchange:
        """Return a request to a model, ready to be sent."""
        return GrpcExchange(self, encode_request(name, version, request, all_outputs, {}), self._metadata(request))

    def streamed(self, name: str, version: str, request: InferenceRequest, all_outputs: bool) -> GrpcStream:
        """Return a request to a decoupled model, ready to be sent."""
        body = encode_request(name, version, request, all_outputs, {"triton_enable_empty_final_response": True})
        # Errors have a text but no code: requesting codes with `triton_grpc_error` crashed a server (2.51).
        return GrpcStream(self, body, self._metadata(request))

    def _metadata(self, request: InferenceRequest) -> tuple[tuple[str, str], ...]:
        headers = headers_of(request._options)
        return (*self.metadata_of_all, *headers.items()) if headers else self.metadata_of_all

    def query(self, what: str, name: str = "", version: str = "", seconds: float = QUERY_SECONDS) -> Any:
        """Query the server; see `Client.query`."""
        from google.protobuf.json_format import MessageToDict

        method, request = _QUERIES[what]
        message = request(name=name, version=version) if name else request()
        with CtrlC():
            answer = self._ask(getattr(self._stub, method), message, self.remaining(seconds))
        document = MessageToDict(answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        if what == "statistics":
            return _with_numbers(document)
        key = {"index": "models", "config": "config"}.get(what)
        return document if key is None else document[key]

    def _ask(self, method: Callable[..., Any], request: Any, seconds: float) -> Any:
        for pause in (*RETRIES, None):
            parker = Parker()
            try:
                call = method.future(request, timeout=seconds, metadata=self.metadata_of_all)  # type: ignore[attr-defined]
                call.add_done_callback(lambda _, parker=parker: parker.unpark())
                try:
                    parker.park()
                except BaseException:
                    call.cancel()
                    raise
                return call.result()
            except grpc.FutureCancelledError:
                raise self.cancelled("") from None
            except grpc.RpcError as error:
                problem = self.error_of(error, query_timeout=seconds)
                if pause is None or problem.sent:
                    raise problem from error
                Parker().park(pause)
            except ValueError as error:  # the channel is closed
                raise self.unanswered(str(error), False) from error
        raise AssertionError

    def _hang_up(self) -> None:
        self._channel.close()
        self.more.set()

    def error_of(self, error: Any, lost: str = "", query_timeout: float = 0.0) -> ServerError:
        """Return the error of a request; `lost` is why it was cancelled, `query_timeout` the seconds of a query."""
        code, details = error.code(), str(error.details() or "")
        if code is grpc.StatusCode.CANCELLED and (lost or "cancelled by" in details.lower() or self.closed):
            return self.cancelled(lost)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED and query_timeout:
            return self.unanswered(f"no answer within {query_timeout:g} s", True)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED and self.address.timeout is not None:
            return self.timed_out()  # otherwise the server itself reported it
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL):
            not_sent = _NOT_SENT.search(details) is not None and code is grpc.StatusCode.UNAVAILABLE
            if not_sent or _LOST.search(details):
                why = _WHY.sub("", details).strip() or details
                return self.unanswered(why.split("\n")[0][:200], not not_sent)
        return ServerError(details or f"the server answered {code.name}", _CODES.get(code, ErrorCode.UNKNOWN))


class GrpcExchange:
    """A request with one response."""

    def __init__(self, link: GrpcClient, body: bytes, metadata: tuple[tuple[str, str], ...]) -> None:
        self._link = link
        self._body = body
        self._metadata = metadata
        self._call: Any = None
        self._cancelled = False
        self._lost = ""
        self._attempt = 0

    def cancel(self, lost: str = "") -> None:
        """Cancel the request."""
        self._lost = lost
        self._cancelled = True
        call = self._call
        if call is not None:
            call.cancel()

    def _send(self, method: Any) -> Any:
        return method(self._body, timeout=self._link.address.timeout, metadata=self._metadata)

    def _again(self, problem: ServerError) -> bool:
        """Return whether to retry, because the request could not be sent."""
        self._attempt += 1
        is_new = bool(problem.lost) and not self._link.lost  # the client did not know of the loss yet
        return is_new and not problem.sent and not self._cancelled and self._attempt <= len(RETRIES)

    def start(self, deliver: Deliver, in_thread: InThread) -> None:
        """Send the request; grpcio's thread delivers the response."""
        link = self._link
        link.begun(self)
        sender = 0  # the sending thread; `done` runs on it if the response has already arrived

        def done(call: Any) -> None:
            try:
                box = [decode_response(call.result())[0]]
            except grpc.RpcError as error:
                problem = link.error_of(error, self._lost)
                if self._again(problem):
                    in_thread(again)
                    return
                box = [link.failed(problem)]
            except grpc.FutureCancelledError:
                box = [link.failed(link.cancelled(self._lost))]
            except AnswerError as error:
                box = [link.failed(_refused(link, error))]
            self._call = None
            link.over(self)
            deliver(box, True)
            if threading.get_ident() != sender:  # this is grpcio's thread
                link.linger()

        def again() -> None:
            time.sleep(RETRIES[self._attempt - 1])
            send()

        def send() -> None:
            nonlocal sender
            sender = threading.get_ident()
            try:
                self._call = call = self._send(link.infer.future)
            except ValueError as error:
                link.over(self)
                deliver([link.failed(_refused(link, error))], True)
                return
            if self._cancelled:
                call.cancel()
            call.add_done_callback(done)
            link.more.set()

        send()


class GrpcStream(GrpcExchange):
    """A request to a decoupled model, with any number of responses."""

    def start(self, deliver: Deliver, in_thread: InThread) -> None:
        """Send the request; a worker thread delivers the responses."""
        self._link.begun(self)
        in_thread(lambda: self._read(deliver))

    def _read(self, deliver: Deliver) -> None:
        link = self._link
        ended = False
        try:
            while not ended:
                try:
                    self._call = call = self._send(link.stream)
                    if self._cancelled:
                        call.cancel()
                    for data in call:
                        response, final, error = decode_streamed(data)
                        deliver([InferenceResponse([], TritonError(error)) if error else response], final)
                        ended = ended or final
                    break
                except grpc.RpcError as error:
                    problem = link.error_of(error, self._lost)
                    if ended or not self._again(problem):
                        raise problem from error
                time.sleep(RETRIES[self._attempt - 1])
            if not ended:  # a server that sends no final responses
                deliver([InferenceResponse([])], True)
        except ServerError as problem:
            if not ended:
                deliver([link.failed(problem)], True)
        except ValueError as error:
            if not ended:
                deliver([link.failed(_refused(link, error))], True)
        finally:
            call = self._call
            if call is not None:
                call.cancel()  # no effect if the stream has ended
            self._call = None
            link.over(self)


def _refused(link: Client, error: ValueError) -> ServerError:
    if isinstance(error, AnswerError):
        return ServerError(f"{link.address}: {error}", ErrorCode.INTERNAL)
    return link.unanswered(str(error), False)


def _with_numbers(value: Any) -> Any:
    """Convert text to integers, as in Triton's JSON over HTTP: protobuf writes 64-bit integers as text."""
    if isinstance(value, dict):
        return {k: v if k in ("name", "version") else _with_numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_with_numbers(item) for item in value]
    return int(value) if isinstance(value, str) and value.isdigit() else value
