"""Small servers of the KServe v2 protocol, to be talked to: what a real Triton would hardly do on demand."""

# ruff: noqa: N802 - names of gRPC's methods

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from tests.waiting import LIMIT


class Service(service_pb2_grpc.GRPCInferenceServiceServicer):
    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.gone = False  # over HTTP: close the connection instead of an answer
        self.came = threading.Semaphore(0)
        self.requests: list[pb.ModelInferRequest] = []
        self.metadata: list[dict[str, str]] = []
        self.answers: Callable[[pb.ModelInferRequest], pb.ModelInferResponse] = echoed
        self.cancelled = threading.Semaphore(0)

    def ServerLive(self, request: Any, context: Any) -> Any:
        return pb.ServerLiveResponse(live=True)

    def ModelConfig(self, request: Any, context: Any) -> Any:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "")

    def ModelReady(self, request: Any, context: Any) -> Any:
        return pb.ModelReadyResponse(ready=True)

    def ServerMetadata(self, request: Any, context: Any) -> Any:
        return pb.ServerMetadataResponse(name="small", version="1")

    def ModelMetadata(self, request: Any, context: Any) -> Any:
        if request.name not in ("echo", "other"):
            context.abort(grpc.StatusCode.NOT_FOUND, f"no model {request.name}")
        one = [pb.ModelMetadataResponse.TensorMetadata(name="X", datatype="FP32", shape=[-1])]
        return pb.ModelMetadataResponse(name=request.name, versions=["1"], platform="p", inputs=one, outputs=one)

    def ModelInfer(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        context.add_callback(self.cancelled.release)
        self.came.release()
        self.go.wait(LIMIT)
        if "fail" in request.parameters:
            code = request.parameters["fail"].string_param
            context.abort(grpc.StatusCode[code], f"it is {code}")
        return self.answers(request)


def echoed(request: pb.ModelInferRequest) -> pb.ModelInferResponse:
    out = pb.ModelInferResponse(model_name=request.model_name, model_version="1")
    for tensor in request.inputs:
        out.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
    out.raw_output_contents.extend(request.raw_input_contents)
    return out


@contextmanager
def serving(service: Service, port: int = 0) -> Iterator[int]:
    server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(service, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield port
    finally:
        stopped = server.stop(None)
        service.go.set()
        stopped.wait()


@contextmanager
def serving_http(answer: Callable[[str, dict[str, Any]], tuple[int, Any]]) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._answer(json.loads(body) if body else {})

        def do_GET(self) -> None:
            self._answer({})

        def _answer(self, document: dict[str, Any]) -> None:
            status, said = answer(self.path, document)
            if status == 0:  # none
                self.close_connection = True
                return
            body = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def serving_echo(service: Service) -> Iterator[int]:
    described = {"name": "X", "datatype": "FP32", "shape": [-1]}

    def answer(path: str, document: dict[str, Any]) -> tuple[int, Any]:
        if not path.endswith("/infer"):
            return 200, {"name": "echo", "inputs": [described], "outputs": [described]}
        service.came.release()
        service.go.wait(LIMIT)
        return 0 if service.gone else 200, {"outputs": document["inputs"]}

    with serving_http(answer) as port:
        yield port
        service.go.set()


SERVING = {"grpc": serving, "http": serving_echo}
