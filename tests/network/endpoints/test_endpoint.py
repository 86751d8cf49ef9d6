"""The endpoint by itself: who may ask, what it takes, and how it ends. What clients do: `test_clients.py`."""

from __future__ import annotations

import gc
import http.client
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import shared_memory
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.engine import ticket
from bls_notebook.network import Endpoint
from bls_notebook.network.records import EndpointModel, EndpointRecord
from bls_notebook.records.errors import ErrorRecord
from tests.engine.harness import until
from tests.repository.models import ECHOES
from tests.shipping.fake_tritonserver import linux
from tests.waiting import LIMIT

HEAD = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_INT32", "dims": [-1]})
        config.add_output({"name": "Y", "data_type": "TYPE_INT32", "dims": [-1]})
        config.set_max_batch_size(0)
        return config

"""
DECOUPLED_HEAD = "import bls_endpoint_gate as gate\n" + HEAD.replace(
    "return", 'config.set_model_transaction_policy({"decoupled": True})\n        return'
)
TWICE = f"""{HEAD}
    def execute(self, requests):
        tensors = [pb_utils.Tensor("Y", FACTOR * r.inputs()[0].as_numpy()) for r in requests]
        return [pb_utils.InferenceResponse([tensor]) for tensor in tensors]
"""
WAITS = f"""{DECOUPLED_HEAD}
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", request.inputs()[0].as_numpy())]))
            gate.running.set()
            while not request.is_cancelled() and not gate.go_on.wait(0.001):
                pass
            gate.cancelled.append(request.is_cancelled())
            gate.ended.set()
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def twice(factor: int = 2) -> str:
    return TWICE.replace("FACTOR", str(factor))


class Gate(types.ModuleType):
    def __init__(self) -> None:
        super().__init__("bls_endpoint_gate")
        self.open()

    def open(self) -> None:
        self.running, self.go_on, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.cancelled: list[bool] = []


@pytest.fixture(scope="module")
def shared_gate() -> Iterator[Gate]:
    gate = sys.modules["bls_endpoint_gate"] = Gate()
    yield gate
    del sys.modules["bls_endpoint_gate"]


@pytest.fixture
def gate(shared_gate: Gate) -> Gate:
    shared_gate.open()
    return shared_gate


@pytest.fixture(scope="module")
def endpoint(shared_gate: Gate) -> Iterator[Endpoint]:
    with bls.ModelRepository() as repo:
        repo.define("twice", twice())
        repo.define("waits", WAITS)
        with bls.endpoint(repo, body_limit=1 << 20, patience=5.0, allow_client_shm=True) as endpoint:
            yield endpoint
        assert endpoint.record.state == "STOPPED"


def ask(endpoint: Endpoint, path: str, body: Any = None, method: str = "", **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.http_port, timeout=LIMIT)
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        method = method or ("GET" if body is None else "POST")
        connection.request(method, path, data, {**endpoint.headers, **named})
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    try:
        return answer.status, json.loads(content)
    except ValueError:
        return answer.status, content


def started(endpoint: Endpoint, path: str = "waits/generate_stream", body: Any = None) -> http.client.HTTPConnection:
    """Send a request; do not read the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.http_port, timeout=LIMIT)
    connection.request("POST", f"/v2/models/{path}", json.dumps(body or {"X": 5}).encode(), endpoint.headers)
    return connection


@contextmanager
def streaming(endpoint: Endpoint, model: str, **headers: str) -> Iterator[Any]:
    """The answers of a model over gRPC."""
    request = pb.ModelInferRequest(model_name=model)
    request.inputs.add(name="X", datatype="INT32", shape=[1])
    request.raw_input_contents.append(struct.pack("<i", 5))
    with grpc.insecure_channel(endpoint.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        yield stub.ModelStreamInfer(iter([request]), metadata=[*endpoint.headers.items(), *headers.items()])


def number(value: int = 3) -> dict[str, Any]:
    return {"inputs": [{"name": "X", "shape": [1], "datatype": "INT32", "data": [value]}]}


@pytest.mark.parametrize("given", [None, "Bearer wrong", "Bearer ", "Basic x", "Bearer \xfc"])
def test_http_requests_without_the_token_are_refused(endpoint: Endpoint, given: str | None) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.http_port, timeout=LIMIT)
    for path in ("/v2", "/v2/models/twice", "/nowhere", "/metrics", "/v2/health/live"):
        connection.request("GET", path, headers={} if given is None else {"authorization": given})
        answer = connection.getresponse()
        said = json.loads(answer.read())
        assert (answer.status, list(said)) == (401, ["error"])
    connection.close()


def test_grpc_requests_without_the_token_are_refused(endpoint: Endpoint) -> None:
    with grpc.insecure_channel(endpoint.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for call in (
            lambda: stub.ServerLive(pb.ServerLiveRequest()),
            lambda: list(stub.ModelStreamInfer(iter([pb.ModelInferRequest(model_name="twice")]))),
        ):
            with pytest.raises(grpc.RpcError, match="token") as caught:
                call()
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        live = stub.ServerLive(pb.ServerLiveRequest(), metadata=[*endpoint.headers.items()])
        assert live.live


def test_web_pages_are_refused_if_there_is_no_token() -> None:
    with bls.ModelRepository() as repo, bls.endpoint(repo, token="") as endpoint:
        assert endpoint.headers == {}
        assert ask(endpoint, "/v2")[0] == 200
        assert ask(endpoint, "/v2", Origin="http://localhost:8888")[0] == 200
        assert ask(endpoint, "/v2", Host="evil.example")[0] == 403
        assert ask(endpoint, "/v2", Origin="https://evil.example")[0] == 403
        shown = render(endpoint.record)
        assert "any program on this machine" in shown.text


def test_requests_above_the_limits_are_refused(endpoint: Endpoint) -> None:
    assert ask(endpoint, "/v2", X_Long="x" * (80 << 10))[0] == 431
    client = tritonclient.grpc.InferenceServerClient(endpoint.grpc_url)
    large = tritonclient.grpc.InferInput("X", [1 << 20], "INT32")
    large.set_data_from_numpy(np.zeros(1 << 20, np.int32))
    with pytest.raises(tritonclient.utils.InferenceServerException, match="larger"):
        client.infer("twice", [large], headers=endpoint.headers)
    client.close()


def test_a_client_that_stops_sending_is_disconnected() -> None:
    with bls.ModelRepository() as repo, bls.endpoint(repo, patience=0.2) as endpoint:
        host = ("127.0.0.1", endpoint.http_port)
        with socket.create_connection(host, timeout=LIMIT) as silent, socket.create_connection(host) as slow:
            silent.sendall(b"GET /v2 HT")
            token = endpoint.headers["authorization"].encode()
            slow.settimeout(20)
            slow.sendall(
                b"POST /v2/repository/index HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\nauthorization: "
                + token + b"\r\n\r\n{"
            )  # fmt: skip
            assert silent.recv(1) == b""
            assert slow.recv(12) == b"HTTP/1.1 400"


@pytest.mark.parametrize("way", ["infer", "generate", "generate_stream", "grpc"])
def test_only_a_grpc_client_that_gives_up_cancels_its_request(endpoint: Endpoint, gate: Gate, way: str) -> None:
    """Triton's HTTP server notices a client that has left only when it writes a response."""
    once = WAITS.replace('config.set_model_transaction_policy({"decoupled": True})', "")
    once = once.replace("sender.send(pb_utils.InferenceResponse([", "answer = (pb_utils.InferenceResponse([")
    once = once.replace("sender.send(flags=", "sender.send(answer, flags=")
    endpoint.repository.define("once", once)
    if way == "grpc":
        client = tritonclient.grpc.InferenceServerClient(endpoint.grpc_url)
        given = tritonclient.grpc.InferInput("X", [1], "INT32")
        given.set_data_from_numpy(np.zeros(1, np.int32))
        call = client.async_infer("once", [given], lambda *_: None, headers=endpoint.headers)
        assert gate.running.wait(LIMIT)
        call.cancel()
        client.close()
    else:
        connection = started(endpoint, f"once/{way}", number() if way == "infer" else {"X": 1})
        assert gate.running.wait(LIMIT)
        connection.close()
        assert ask(endpoint, "/v2")[0] == 200  # the endpoint has seen the end of the connection
        gate.go_on.set()
    assert gate.ended.wait(LIMIT)
    assert gate.cancelled == [way == "grpc"]


@pytest.mark.parametrize("way", ["http", "grpc"])
def test_a_client_that_disconnects_cancels_its_stream(endpoint: Endpoint, gate: Gate, way: str) -> None:
    if way == "http":
        connection = started(endpoint)
        answer = connection.getresponse()
        assert answer.readline() == b'data: {"Y":5,"model_name":"waits","model_version":"1"}\n'
        answer.close()
        connection.close()
    else:
        with streaming(endpoint, "waits") as stream:
            assert next(stream).infer_response.raw_output_contents == [struct.pack("<i", 5)]
            stream.cancel()
    assert gate.ended.wait(LIMIT)
    assert gate.cancelled == [True]


MANY = f"""{DECOUPLED_HEAD}
    def execute(self, requests):
        sender = requests[0].get_response_sender()
        for n in range(400):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.full(1 << 14, n, np.int32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        gate.ended.set()
"""


FAILS = f"""{DECOUPLED_HEAD}
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", request.inputs()[0].as_numpy())]))
            for flags in (0, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL):
                error = pb_utils.TritonError("no", pb_utils.TritonError.NOT_FOUND)
                sender.send(pb_utils.InferenceResponse(error=error), flags=flags)
"""


def test_an_error_ends_a_stream_with_its_code_if_a_header_asks_for_it(endpoint: Endpoint) -> None:
    endpoint.repository.define("fails", FAILS)
    with streaming(endpoint, "fails", triton_grpc_error="true") as stream:
        assert next(stream).infer_response.raw_output_contents == [struct.pack("<i", 5)]
        with pytest.raises(grpc.RpcError):
            next(stream)
        assert (stream.code(), stream.details()) == (grpc.StatusCode.NOT_FOUND, "no")
    with streaming(endpoint, "fails") as stream:
        assert [each.error_message for each in stream] == ["", "no", "no"]


def test_a_client_that_does_not_read_is_reported_and_loses_nothing(
    endpoint: Endpoint, gate: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ticket, "UNREAD_BYTES", 8 << 20)
    endpoint.repository.define("many", MANY)
    with streaming(endpoint, "many") as stream:
        assert gate.ended.wait(LIMIT)
        read = [each.infer_response.raw_output_contents[0][:4] for each in stream]
    assert read == [struct.pack("<i", n) for n in range(400)]
    assert any("responses to one request" in record.message for record in caplog.records)


@pytest.mark.slow
def test_the_endpoint_answers_while_models_change(endpoint: Endpoint) -> None:
    factors, found, failed = range(2, 40), [], []
    stop = threading.Event()

    def client() -> None:
        while not stop.is_set():
            status, said = ask(endpoint, "/v2/models/twice/infer", number(1))
            (found if status == 200 else failed).append(said)

    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    for factor in factors:
        endpoint.repository.define("twice", twice(factor))
    until(lambda: len(found) >= len(threads) or failed)
    stop.set()
    for thread in threads:
        thread.join()
    endpoint.repository.define("twice", twice())
    assert failed == []
    assert {answer["outputs"][0]["data"][0] for answer in found} <= {*factors}


def test_requests_above_max_requests_are_refused(gate: Gate) -> None:
    with bls.ModelRepository() as repo:
        repo.define("waits", WAITS)
        repo.define("twice", twice())
        with bls.endpoint(repo, max_requests=1) as endpoint:
            connection = started(endpoint)
            assert gate.running.wait(LIMIT)
            status, said = ask(endpoint, "/v2/models/twice/infer", number())
            assert (status, "the limit of this endpoint" in said["error"]) == (503, True)
            assert endpoint.record.under_way == 1
            gate.go_on.set()
            answer = connection.getresponse()
            answer.read()
            assert ask(endpoint, "/v2/models/twice/infer", number())[0] == 200
            connection.close()


@linux
def test_keys_can_only_name_shared_memory(endpoint: Endpoint, tmp_path: Any) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(64))
    path = "/v2/systemsharedmemory/region/r/register"
    keys = [f"../..{file}", f"/../..{file}", str(file), ".", "..", "a/b", "x\0y", "x" * 5000]
    for key in keys:
        status, said = ask(endpoint, path, {"key": key, "byte_size": 4})
        assert (status, "Unable to open" in said["error"]) == (500, True), key
    for key in ("", "/", "//triton_python_backend_shm_region_1"):
        status, said = ask(endpoint, path, {"key": key, "byte_size": 4})
        assert (status, "cannot register shared memory region" in said["error"]) == (400, True), key
    link = shared_memory.SharedMemory(create=True, size=64)
    try:
        key = link.name
        for more, status in (({"byte_size": 65}, 400), ({"byte_size": 8, "offset": 60}, 400), ({"byte_size": 0}, 500)):
            assert ask(endpoint, path, {"key": key, **more})[0] == status
        assert ask(endpoint, path, {"key": key, "byte_size": 32, "offset": 32})[0] == 200
        given = {"shared_memory_region": "r", "shared_memory_byte_size": 4, "shared_memory_offset": 30}
        inputs = [{"name": "X", "shape": [1], "datatype": "INT32", "parameters": given}]
        assert ask(endpoint, "/v2/models/twice/infer", {"inputs": inputs})[0] == 400
        given["shared_memory_offset"] = 28
        assert ask(endpoint, "/v2/models/twice/infer", {"inputs": inputs})[0] == 200
        os.truncate(f"/dev/shm/{key}", 32)
        status, said = ask(endpoint, "/v2/models/twice/infer", {"inputs": inputs})
        assert (status, "has become smaller" in said["error"]) == (400, True)
    finally:
        assert ask(endpoint, "/v2/systemsharedmemory/unregister", b"")[0] == 200
        link.close()
        link.unlink()


def test_an_endpoint_can_serve_models_connected_to_itself() -> None:
    with bls.ModelRepository() as repo, bls.endpoint(repo) as endpoint:
        repo.define("twice", twice())
        bls.connect(f"grpc://{endpoint.grpc_url}", repo=repo, prefix="far_", headers=endpoint.headers)
        for name in ("twice", "far_twice"):
            assert repo.infer(name, {"X": np.ones(1, np.int32)}).error is None
        status, said = ask(endpoint, "/v2/models/stats")
        counts = {row["name"]: row["inference_stats"]["success"]["count"] for row in said["model_stats"]}
        assert (status, counts) == (200, {"twice": 2, "far_twice": 2})


def test_nothing_is_left_when_it_stops() -> None:
    before = set(threading.enumerate())
    with bls.ModelRepository() as repo:
        repo.define("twice", twice())
        endpoint = bls.endpoint(repo)
        ports = (endpoint.http_port, endpoint.grpc_port)
        assert ask(endpoint, "/v2/models/twice/infer", number())[0] == 200
        endpoint.stop()
        endpoint.stop()
        again = bls.endpoint(repo, http_port=ports[0], grpc_port=ports[1])
        assert ask(again, "/v2/health/ready")[0] == 200
        with pytest.raises(bls.BLSError, match="port"):
            bls.endpoint(repo, http_port=ports[0])
        with pytest.raises(bls.BLSError, match="port"):
            bls.endpoint(repo, grpc_port=ports[1])
        repo.close()
        assert again.record.state == "CLOSED"
        assert ask(again, "/v2/health/ready")[0] == 400
        assert ask(again, "/v2/models/twice/infer", number())[0] == 404
        thread = next(each for each in set(threading.enumerate()) - before if each.name == "bls-endpoint")
        del again  # nobody holds it any more
        gc.collect()
        thread.join(LIMIT)
        assert not thread.is_alive()


def test_requests_in_flight_are_cancelled_after_the_exit_timeout(gate: Gate) -> None:
    with bls.ModelRepository() as repo:
        repo.define("waits", WAITS)
        with bls.endpoint(repo, exit_timeout_secs=0) as endpoint:
            connection = started(endpoint)
            assert gate.running.wait(LIMIT)
        assert gate.ended.wait(LIMIT)
        connection.close()
    assert gate.cancelled == [True]


def test_requests_in_flight_are_completed_and_new_ones_refused_when_it_stops(gate: Gate) -> None:
    with bls.ModelRepository() as repo:
        repo.define("waits", WAITS)
        repo.define("twice", twice())
        endpoint = bls.endpoint(repo)
        connection = started(endpoint)
        with streaming(endpoint, "twice") as idle, streaming(endpoint, "waits") as busy:
            assert next(idle).infer_response
            assert gate.running.wait(LIMIT)
            until(lambda: endpoint.record.under_way == 2)
            stopping = threading.Thread(target=endpoint.stop)
            stopping.start()
            until(lambda: ask(endpoint, "/v2/models/twice/infer", number())[0] == 503)
            gate.go_on.set()
            assert len(list(busy)) == 1
            stopping.join(LIMIT)
            assert b'"Y":5' in connection.getresponse().read()
        connection.close()
        assert not stopping.is_alive()
    assert gate.cancelled == [False, False]


@linux
def test_a_shared_memory_region_in_use_is_unregistered_when_its_request_ends(endpoint: Endpoint, gate: Gate) -> None:
    link = shared_memory.SharedMemory(create=True, size=64)
    link.buf[:4] = struct.pack("<i", 5)
    regions, status = "/v2/systemsharedmemory/region", "/v2/systemsharedmemory/region/r/status"
    try:
        assert ask(endpoint, f"{regions}/r/register", {"key": link.name, "byte_size": 64})[0] == 200
        request = pb.ModelInferRequest(model_name="waits")
        for place, tensor in ((0, request.inputs.add(name="X", datatype="INT32", shape=[1])),
                              (8, request.outputs.add(name="Y"))):  # fmt: skip
            tensor.parameters["shared_memory_region"].string_param = "r"
            tensor.parameters["shared_memory_byte_size"].int64_param = 4
            tensor.parameters["shared_memory_offset"].int64_param = place
        with grpc.insecure_channel(endpoint.grpc_url) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            answers = stub.ModelStreamInfer(iter([request]), metadata=[*endpoint.headers.items()])
            next(answers)
            assert gate.running.wait(LIMIT)
            assert ask(endpoint, f"{regions}/r/unregister", b"")[0] == 200
            assert ask(endpoint, status)[0] == 200  # until the request ends
            gate.go_on.set()
            assert list(answers) == []
        assert ask(endpoint, status)[0] == 404
        assert bytes(link.buf[8:12]) == struct.pack("<i", 5)
    finally:
        link.close()
        link.unlink()


def test_a_server_is_ready_if_all_of_its_models_are() -> None:
    with bls.ModelRepository() as repo:
        repo.define("twice", twice())
        with bls.endpoint(repo) as strict, bls.endpoint(repo, strict_readiness=False) as lax:
            for change, status in (
                (lambda: repo.unload("twice"), 200), (lambda: repo.define("fails", "raise ValueError"), 400),
            ):  # fmt: skip
                assert ask(strict, "/v2/health/ready")[0] == 200
                with suppress(bls.BLSError):
                    change()
                assert ask(strict, "/v2/health/ready")[0] == status
            assert ask(lax, "/v2/health/ready")[0] == 200


def test_an_unload_is_answered_while_requests_finish(gate: Gate) -> None:
    with bls.ModelRepository() as repo, bls.endpoint(repo) as endpoint:
        repo.define("waits", WAITS)
        connection = started(endpoint)
        assert gate.running.wait(LIMIT)
        assert ask(endpoint, "/v2/repository/models/waits/unload", {})[0] == 200
        assert not gate.ended.is_set()
        (row,) = ask(endpoint, "/v2/repository/index", {})[1]
        assert row == {"name": "waits", "version": "1", "state": "UNLOADING"}
        gate.go_on.set()
        assert connection.getresponse().read().endswith(b"\n\n")
        connection.close()
        until(lambda: ask(endpoint, "/v2/repository/index", {})[1][0]["state"] == "UNAVAILABLE")


@pytest.mark.parametrize(
    ("wrong", "options"),
    [("http_port", {"http_port": 70000}), ("grpc_port", {"grpc_port": "x"}), ("token", {"token": "a b"}),
     ("body_limit", {"body_limit": 0}), ("patience", {"patience": -1})],
)  # fmt: skip
def test_wrong_arguments_get_one_line(wrong: str, options: dict[str, Any]) -> None:
    with bls.ModelRepository() as repo, pytest.raises(bls.BLSError, match=wrong) as caught:
        bls.endpoint(repo, **options)
    assert "\n" not in str(caught.value)


def test_the_display_of_an_endpoint() -> None:
    models = (EndpointModel("a", 1, "READY", "", False, 1200, 3), EndpointModel("b", 2, "GONE", "why"))
    record = EndpointRecord("READY", "http://127.0.0.1:1", "127.0.0.1:2", "secret", models, 4)
    assert EndpointRecord.from_dict(json.loads(json.dumps(record.to_dict()))) == record
    shown = render(record)
    for told in ("READY", "1,200", "4 under way", "127.0.0.1:2", "Bearer secret", "perf_analyzer"):
        assert told in shown.text
        assert told in shown.html
    failed = render(replace(record, error=ErrorRecord("it broke", "INTERNAL", ("a",))))
    assert "it broke" in failed.text
    stopped = render(EndpointRecord("STOPPED", "http://127.0.0.1:1", "127.0.0.1:2", "secret"))
    assert "secret" not in stopped.text + stopped.html


DECOUPLED = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for _ in range(3):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
PERF_ANALYZER = shutil.which("perf_analyzer")


@pytest.mark.slow
@pytest.mark.skipif(PERF_ANALYZER is None, reason="perf_analyzer, of the wheel tritonclient 2.50.0, is not on the PATH")
@pytest.mark.parametrize(
    ("model", "options"),
    [
        *((model, f"-i {protocol} {way}") for protocol in ("http", "grpc") for way in ("--sync", "--async")
          for model in ("echo", "sequence")),
        *(("echo", f"-i {protocol} --async --shared-memory system") for protocol in ("http", "grpc")),
        *((model, f"-i grpc --async --streaming{shared}") for shared in ("", " --shared-memory system")
          for model in ("echo", "sequence", "count")),
    ],
)  # fmt: skip
def test_perf_analyzer_measures_models(model: str, options: str) -> None:
    text = 'backend: "python"\nmax_batch_size: 4\n'
    text += "".join(f'{kind} [{{name: "{kind}" data_type: TYPE_INT32 dims: [4]}}]\n' for kind in ("input", "output"))
    more = {"sequence": "sequence_batching { oldest {} }", "count": "model_transaction_policy { decoupled: true }"}
    with bls.ModelRepository() as repo:
        source = DECOUPLED if model == "count" else ECHOES
        repo.define(model, source.replace('"OUT"', '"output"'), text + more.get(model, ""))
        with bls.endpoint(repo, token="") as endpoint:
            port = endpoint.http_port if "-i http" in options else endpoint.grpc_port
            windows = "--measurement-mode count_windows --measurement-request-count 20 -s 999 -r 3"
            command = [str(PERF_ANALYZER), "-m", model, "-u", f"127.0.0.1:{port}", *f"{options} {windows}".split()]
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
            (row,) = endpoint.record.models
    assert (done.returncode in (0, 2), row.failed) == (True, 0), done.stdout + done.stderr  # 2: unstable times
    assert row.requests >= 20


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_told_that_grpc_does_not_work_there() -> None:
    script = """
import os
import bls_notebook as bls

endpoint = bls.endpoint()
child = os.fork()
if not child:
    with bls.ModelRepository() as own:
        for start in (lambda: bls.endpoint(own), lambda: bls.connect("grpc://127.0.0.1:1", repo=own)):
            try:
                start()
            except bls.BLSError as error:
                print(type(error).__name__, "spawn" in str(error), flush=True)
    os._exit(3)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
endpoint.stop()
print(status)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.stdout.splitlines() == ["ForkedError True", "ForkedError True", "3"], done.stderr
