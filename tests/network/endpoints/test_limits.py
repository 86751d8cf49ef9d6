"""Limits are checked before any work: nothing is read, parsed or kept for a request that is refused."""

from __future__ import annotations

import asyncio
import gc
import gzip
import http.client
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import h11
import pytest
from tritonclient.grpc import service_pb2 as pb
from uvicorn.protocols.http.h11_impl import H11Protocol

import bls_notebook as bls
from bls_notebook.network import limits
from bls_notebook.network.endpoints import admission as admission_module
from bls_notebook.network.endpoints import http_server
from bls_notebook.network.endpoints.admission import Admission, Body
from bls_notebook.network.endpoints.header_options import HeaderOptions
from bls_notebook.network.endpoints.http_server import HttpServer
from bls_notebook.network.kserve import grpc_codec, json_codec
from bls_notebook.network.kserve import request as request_module
from bls_notebook.network.kserve.errors import ProtocolError
from bls_notebook.network.kserve.grpc_codec import _varint
from bls_notebook.network.kserve.shared_memory import RegionUse
from bls_notebook.network.kserve.tensors import flat, input_tensor
from tests.engine import gates
from tests.engine.harness import until
from tests.repository.models import ECHOES
from tests.shipping.fake_tritonserver import linux
from tests.waiting import LIMIT

TENSORS = "\n".join(f'{way} {{ name: "{name}" data_type: TYPE_FP32 dims: [-1] }}' for way, name in
                    (("input", "IN"), ("output", "OUT")))  # fmt: skip
CONFIG = f'backend: "python"\n{TENSORS}'


def post(connection: http.client.HTTPConnection, path: str, body: Any) -> tuple[int, str]:
    connection.request("POST", f"/v2/{path}", body if isinstance(body, bytes) else json.dumps(body))
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@pytest.fixture
def connection() -> Iterator[http.client.HTTPConnection]:
    with bls.ModelRepository() as repo:
        repo.define("m", ECHOES, CONFIG)
        with bls.endpoint(repo, token="", allow_client_shm=True) as endpoint:
            connection = http.client.HTTPConnection("127.0.0.1", endpoint.http_port, timeout=LIMIT)
            yield connection
            connection.close()


def test_documents_of_too_many_values_are_refused_unparsed(
    connection: http.client.HTTPConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "JSON_CONTAINERS", 100)
    for path in ("models/m/infer", "models/m/generate", "repository/index"):
        status, text = post(connection, path, b'{"inputs":[' + b"{}," * 200)  # not even complete
        assert (status, "more than 100 lists and objects" in text) == (400, True)


def test_requests_of_too_many_tensors_are_refused_undecoded(connection: http.client.HTTPConnection) -> None:
    texts = {"name": "IN", "datatype": "BYTES", "shape": [1 << 30], "parameters": {"binary_data_size": 0}}
    assert "the limit for BYTES" in post(connection, "models/m/infer", {"inputs": [texts]})[1]
    for kind in ("inputs", "outputs"):
        status, text = post(connection, "models/m/infer", {"inputs": [], kind: [1] * 5000})
        assert (status, f"5,000 {kind}; the limit is 4,096" in text) == (400, True)
    parameters = {str(number): 1 for number in range(5000)}
    assert "5,000 parameters" in post(connection, "models/m/infer", {"inputs": [], "parameters": parameters})[1]


def test_nested_lists_are_read_once() -> None:
    deep: Any = [0]
    for _ in range(900):
        deep = [deep, 1]
    counted = [sys.maxsize] * 1000
    lines = 0

    def count(frame: Any, event: str, _: Any) -> Any:
        nonlocal lines
        lines += frame.f_code.co_name in ("flat", "<genexpr>", "<listcomp>")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        found = flat([deep, *counted])
    finally:
        sys.settrace(before)
    assert found == [0, *[1] * 900, *counted]
    assert lines < 50_000


def test_values_of_a_large_response_are_written_in_pieces(
    connection: http.client.HTTPConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, longest = [0.5 * number for number in range(1000)], 0
    written = json_codec.written

    def recorded(document: Any) -> bytes:
        nonlocal longest
        longest = max(longest, len(document))
        return written(document)

    monkeypatch.setattr(json_codec, "_PIECE", 64)
    monkeypatch.setattr(json_codec, "written", recorded)
    sent = {"name": "IN", "datatype": "FP32", "shape": [1000], "data": values}
    status, text = post(connection, "models/m/infer", {"id": "r", "inputs": [sent]})
    output = {**sent, "name": "OUT"}
    assert (status, json.loads(text)) == (
        200, {"id": "r", "model_name": "m", "model_version": "1", "outputs": [output]}
    )  # fmt: skip
    status, text = post(connection, "models/m/generate", {"id": "r", "IN": values})
    assert (status, json.loads(text)) == (200, {"OUT": values, "id": "r", "model_name": "m", "model_version": "1"})
    assert longest == 64


@linux
def test_names_of_shared_memory_regions_are_short() -> None:
    request = pb.SystemSharedMemoryRegisterRequest(name="r" * 4001, key="k", byte_size=1)
    with (
        bls.ModelRepository() as repo,
        bls.endpoint(repo, token="", allow_client_shm=True) as endpoint,
        grpc.insecure_channel(endpoint.grpc_url) as channel,
        pytest.raises(grpc.RpcError, match="more than 4,000 characters"),
    ):
        channel.unary_unary(f"{SERVICE}SystemSharedMemoryRegister")(request.SerializeToString(), timeout=LIMIT)


@linux
def test_shared_memory_of_the_wrong_size_is_not_read(
    connection: http.client.HTTPConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Path(f"/dev/shm/bls_notebook_limits_{os.getpid()}")
    with memory.open("wb") as file:
        file.truncate(limits.Limits.body + 1)  # sparse
    read: list[str] = []
    monkeypatch.setattr(RegionUse, "read", lambda self, name, *_: read.append(name) or bytes(4))
    try:
        size = limits.Limits.body + 1
        assert (
            post(connection, "systemsharedmemory/region/r/register", {"key": memory.name, "byte_size": size})[0] == 200
        )
        for datatype, status in (("FP32", 400), ("BYTES", 400)):
            where = {"shared_memory_region": "r", "shared_memory_byte_size": size}
            tensor = {"name": "IN", "datatype": datatype, "shape": [1], "parameters": where}
            assert (post(connection, "models/m/infer", {"inputs": [tensor]})[0], read) == (status, [])
    finally:
        memory.unlink()


@pytest.mark.slow
def test_refused_requests_of_a_stream_wait_with_their_client() -> None:
    total, sent, done = 3000, 0, threading.Event()
    gate = "        from tests.engine import gates\n        gates.open_gate('runs'); gates.pass_gate('answer')"
    waits = ECHOES.replace("execute(self, requests):", f"execute(self, requests):\n{gate}")
    first = pb.ModelInferRequest(model_name="waits", raw_input_contents=[bytes(4)])
    first.inputs.add(name="IN", datatype="FP32", shape=[1])

    def requests() -> Iterator[bytes]:
        nonlocal sent
        yield first.SerializeToString()
        gates.pass_gate("runs")
        while sent < total:
            sent += 1
            if sent == total:
                done.set()
            yield pb.ModelInferRequest(model_name="nowhere", id="x" * 9000).SerializeToString()

    with bls.ModelRepository() as repo:
        repo.define("waits", waits, CONFIG)
        with bls.endpoint(repo, token="") as endpoint, grpc.insecure_channel(endpoint.grpc_url) as channel:
            answers = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")(
                requests(), timeout=LIMIT
            )
            assert not done.wait(1)
            gates.open_gate("answer")
            assert sum(1 for _ in answers) == total + 1


def test_connections_without_the_token_make_room_for_others() -> None:
    first, second = b"GET /first HTTP/1.1\r\nhost: x\r\n\r\n", b"GET /second HTTP/1.1\r\nhost: x\r\n\r\n"

    async def clients() -> None:
        began, answer = asyncio.Event(), asyncio.Event()

        async def application(scope: Any, receive: Any, send: Any) -> None:
            if scope["path"] == "/first":
                scope["state"]["trusted"] = True
            else:  # its token has not been checked yet
                began.set()
                await answer.wait()
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})

        server = HttpServer(application, limits.Limits(connections=4))
        async with AsyncExitStack() as stack:
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            serving = asyncio.create_task(server.serve(listening))
            stack.push_async_callback(server.stop, serving, 1)

            async def connect(request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
                reader, writer = await asyncio.open_connection(*listening.getsockname())
                stack.callback(writer.close)
                writer.write(request)
                return reader, writer

            honest, writer = await connect(first)
            assert b" 200 " in await honest.readuntil(b"\r\n\r\n")
            writer.write(second)
            await began.wait()
            others = [await connect(second if number % 2 else b"") for number in range(20)]
            for other, _ in others[:17]:
                with suppress(ConnectionError):
                    assert await other.read() == b""  # closed to make room
            answer.set()
            assert b" 200 " in await honest.readuntil(b"\r\n\r\n")

    with ThreadPoolExecutor(1) as pool:  # where uvicorn leaves signals alone
        pool.submit(asyncio.run, asyncio.wait_for(clients(), gates.LIMIT)).result()


def test_bodies_in_flight_have_a_common_limit_and_their_memory_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    admission = Admission("", limits.Limits(body=1 << 20, bodies=2), HeaderOptions(), HeaderOptions())
    bodies = [Body(admission) for _ in range(4)]
    for each in bodies[:2]:
        for _ in range(1 << 10):  # in small pieces, as chunked
            each.add(1 << 10)
    with pytest.raises(ProtocolError, match="the request is larger") as refused:
        bodies[0].add(1)
    assert refused.value.status == 400
    bodies[2].add(1 << 10)  # a small one
    with pytest.raises(ProtocolError, match="try again later") as refused:
        bodies[3].add(1 << 19)
    assert refused.value.status == 503
    returned = threading.Event()
    monkeypatch.setattr(admission_module, "RETURN_SECONDS", 0.0)
    monkeypatch.setattr(admission_module, "return_free_memory", returned.set)
    for each in bodies[3:0:-1]:
        assert not returned.is_set()
        each.release()
    assert returned.wait(gates.LIMIT)
    returned.clear()
    bodies[0].release()  # another return, even while the first one runs
    assert returned.wait(gates.LIMIT)
    Body(admission).add(1 << 20)


HEAPS = """
import os, sys, threading
import bls_notebook as bls
from bls_notebook.devices.host_memory import return_free_memory

def megabytes():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

def large_body():
    body = [b"x" * 100_000 for _ in range(400)]
    everyone.wait()
    everyone.wait()
    del body
    everyone.wait()

with bls.ModelRepository() as repo, bls.endpoint(repo):
    large = bytes(31 << 20)  # freeing one makes glibc keep the end of each heap
    del large
    before, everyone = megabytes(), threading.Barrier(9)
    for _ in range(8):
        threading.Thread(target=large_body, daemon=True).start()
    everyone.wait()
    during = megabytes()
    everyone.wait()
    everyone.wait()
    return_free_memory()
    print(during - before, megabytes() - before)
"""


@linux
def test_the_memory_of_bodies_that_many_threads_decoded_is_returned() -> None:
    command = [sys.executable, "-c", HEAPS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    during, after = map(int, done.stdout.split())
    assert during > 250, done.stderr
    assert after < 40


def test_a_body_of_tiny_chunks_is_parsed_little_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    receive = h11.Connection.receive_data
    monkeypatch.setattr(
        h11.Connection, "receive_data", lambda self, data: parsed.append(len(data)) or receive(self, data)
    )
    with bls.ModelRepository() as repo, bls.endpoint(repo) as endpoint:
        address = ("127.0.0.1", endpoint.http_port)
        honest = http.client.HTTPConnection(*address, timeout=LIMIT)
        head = b"POST /v2/repository/index HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n"
        token = b"authorization: " + endpoint.headers["authorization"].encode() + b"\r\n\r\n"
        with socket.create_connection(address, LIMIT) as chunked:
            chunked.sendall(head + token + b"1\r\n{\r\n" + b"1\r\n \r\n" * 5000)
            honest.request("GET", "/v2/health/live", headers=endpoint.headers)
            assert honest.getresponse().read() == b""
            chunked.sendall(b"1\r\n}\r\n0\r\n\r\n")
            assert chunked.recv(15) == b"HTTP/1.1 200 OK"
        assert max(parsed) < 1000
        honest.close()


def test_bodies_of_too_many_chunks_are_refused(
    connection: http.client.HTTPConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "CHUNKS", 50)
    head = b"POST /v2/repository/index HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n"
    for count, status in ((40, 200), (60, 400)):
        chunks = b"1\r\n{\r\n" + b"1\r\n \r\n" * (count - 2) + b"1\r\n}\r\n0\r\n\r\n"
        with socket.create_connection(("127.0.0.1", connection.port), LIMIT) as client:
            client.sendall(head + chunks)  # at once: after the answer, the endpoint closes the connection
            answer = http.client.HTTPResponse(client)
            answer.begin()
            found = answer.status, b"exceeds maximum of 50 non-empty chunks" in answer.read()
            assert found == (status, status == 400)


def test_json_and_raw_inputs_above_http_max_input_size_are_refused() -> None:
    with bls.ModelRepository() as repo:
        repo.define("m", ECHOES, CONFIG)
        with bls.endpoint(repo, token="", http_max_input_size=200) as endpoint:
            connection = http.client.HTTPConnection("127.0.0.1", endpoint.http_port, timeout=LIMIT)

            def answer(path: str, body: bytes, **headers: str) -> tuple[int, str]:
                named = {name.replace("_", "-"): value for name, value in headers.items()}
                connection.request("POST", f"/v2/models/m/{path}", body, named)
                answer = connection.getresponse()
                return answer.status, answer.read().decode("latin-1")

            tensor = {"name": "IN", "datatype": "FP32", "shape": [60], "data": [1] * 60}
            data = {**tensor, "parameters": {"binary_data_size": 240}}
            del data["data"]
            whole, head = (json.dumps({"inputs": [one]}, separators=(",", ":")).encode() for one in (tensor, data))
            increase = "Use --http-max-input-size to increase the limit."
            for found, words in (
                (answer("infer", whole), "JSON input 'IN' has a byte_size (240 bytes)"),
                (answer("infer", whole + b" " * 60), "request JSON size of"),
                (answer("infer", bytes(240), Inference_Header_Content_Length="0"), "Raw input has a byte_size (240"),
                (answer("infer", gzip.compress(whole + b" " * 60), content_encoding="gzip"), "Decompressed data size"),
                (
                    answer("generate", b'{"IN":[%b1]}' % (b"1," * 59)),
                    "request size of 0 bytes with input 'IN' of size 240",
                ),
            ):
                assert (found[0], words in found[1], increase in found[1]) == (400, True, True), found
            assert answer("infer", head + bytes(240), Inference_Header_Content_Length=str(len(head)))[0] == 200
            connection.close()


def test_rows_of_too_many_elements_are_not_classified(
    connection: http.client.HTTPConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_module, "CLASSIFIED", 3)
    for count, status in ((3, 200), (4, 400)):
        tensor = {"name": "IN", "datatype": "FP32", "shape": [count], "data": [1] * count}
        outputs = [{"name": "OUT", "parameters": {"classification": 1}}]
        found = post(connection, "models/m/infer", {"inputs": [tensor], "outputs": outputs})
        assert (found[0], "classification output tensor too large" in found[1]) == (status, status == 400)


@pytest.mark.slow
def test_ten_million_texts_fit_into_the_contents_of_a_message(connection: http.client.HTTPConnection) -> None:
    count = 10 << 20
    message = pb.ModelInferRequest(model_name="nowhere")
    message.inputs.add(name="IN", datatype="BYTES", shape=[count]).contents.bytes_contents.extend([b"B"] * count)
    split, raws = grpc_codec.split_message(pb.ModelInferRequest, message.SerializeToString(), grpc_codec.RAW_INPUTS)
    (tensor,) = split.inputs
    assert not raws
    elements = grpc_codec._contents("m", tensor)
    array = input_tensor("m", "", "IN", "BYTES", tensor.shape, elements)._array
    assert (array.size, array[0], array[-1]) == (count, b"B", b"B")


SERVICE = "/inference.GRPCInferenceService/"


@pytest.fixture
def idle() -> Iterator[Callable[..., Iterator[bytes]]]:
    """Yield a function that yields its messages, and then sends nothing more."""
    done = threading.Event()

    def requests(*messages: bytes) -> Iterator[bytes]:
        yield from messages
        done.wait(LIMIT)

    yield requests
    done.set()


def test_unary_calls_without_a_message_end_in_time(idle: Callable[..., Iterator[bytes]]) -> None:
    slow = ECHOES.replace("self, requests):\n", "self, requests):\n        __import__('time').sleep(1.5)\n", 1)
    assert slow != ECHOES
    request = pb.ModelInferRequest(model_name="slow", raw_input_contents=[b""])
    request.inputs.add(name="IN", datatype="FP32", shape=[0])
    with (
        bls.ModelRepository() as repo,
        bls.endpoint(repo, token="", patience=1.0) as endpoint,
        grpc.insecure_channel(endpoint.grpc_url) as channel,
    ):
        repo.define("slow", slow, CONFIG)
        call = channel.stream_unary(f"{SERVICE}ModelInfer")
        complete = channel.unary_unary(f"{SERVICE}ModelInfer").future(request.SerializeToString(), timeout=LIMIT)
        for _ in range(2):
            for late in [call.future(idle(), timeout=LIMIT) for _ in range(3)]:
                with pytest.raises(grpc.RpcError, match=r"the message did not arrive within 1 s"):
                    late.result()
        assert pb.ModelInferResponse.FromString(complete.result()).model_name == "slow"


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _frames(connection: socket.socket) -> Iterator[tuple[int, int]]:
    """Yield kind and flags of each HTTP/2 frame."""
    file = connection.makefile("rb")
    while head := file.read(9):
        file.read(int.from_bytes(head[:3], "big"))
        yield head[3], head[4]


@pytest.mark.slow
def test_no_call_is_dropped_while_the_event_loop_is_busy() -> None:
    headers, reset, settings, ping, end_of_stream = 1, 3, 4, 6, 1
    fields = {":method": "POST", ":scheme": "http", ":path": f"{SERVICE}ServerLive", ":authority": "here",
              "content-type": "application/grpc", "te": "trailers"}  # fmt: skip
    block = b"".join(b"\0%c%b%c%b" % (len(k), k.encode(), len(v), v.encode()) for k, v in fields.items())
    calls = b"".join(_frame(headers, 4 | end_of_stream, 2 * number + 1, block) for number in range(1000))
    busy, free = threading.Event(), threading.Event()

    def block_loop() -> None:
        busy.set()
        assert free.wait(LIMIT)

    with bls.ModelRepository() as repo, bls.endpoint(repo) as endpoint, ExitStack() as stack:
        assert endpoint._running is not None
        endpoint._running._loop.call_soon_threadsafe(block_loop)
        stack.callback(free.set)
        assert busy.wait(LIMIT)
        received = []
        for _ in range(4):  # without the token
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", endpoint.grpc_port), LIMIT))
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(settings, 0, 0))
            connection.sendall(calls + _frame(ping, 0, 0, bytes(8)))
            received.append(_frames(connection))
            assert (ping, 1) in received[-1]  # it has received all calls
        free.set()
        for frames in received:
            answered = 0
            while answered < 1000:
                kind, flags = next(frames)
                assert kind != reset
                answered += kind == headers and flags & end_of_stream


def test_idle_streams_make_room_for_others(idle: Callable[..., Iterator[bytes]]) -> None:
    request = pb.ModelInferRequest(model_name="nowhere").SerializeToString()
    with (
        bls.ModelRepository() as repo,
        bls.endpoint(repo, token="", max_requests=4) as endpoint,
        grpc.insecure_channel(endpoint.grpc_url) as channel,
    ):
        streams = []
        for _ in range(3):
            streams.append(channel.stream_stream(f"{SERVICE}ModelStreamInfer")(idle(request), timeout=LIMIT))
            assert next(streams[-1])
        with pytest.raises(grpc.RpcError, match="others needed its place"):
            next(streams[0])
        assert streams[1].is_active()
        assert streams[2].is_active()


def test_messages_of_too_many_parts_are_refused_unparsed() -> None:
    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2]) + _varint(len(data)) + data

    texts = field(5, field(5, b"\x42\x00" * (limits.STRINGS + 1)))
    with (
        bls.ModelRepository() as repo,
        bls.endpoint(repo, token="") as endpoint,
        grpc.insecure_channel(endpoint.grpc_url) as channel,
    ):
        for method, data in (
            ("ModelInfer", b"\x2a\x00" * 20_000), ("ServerMetadata", b"\x0a\x00" * 20_000), ("ModelInfer", texts),
            ("ModelInfer", field(5, field(3, b"\x01" * 100_000))),
        ):  # fmt: skip
            with pytest.raises(grpc.RpcError, match="too many") as refused:
                channel.unary_unary(SERVICE + method)(data, timeout=LIMIT)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("rest", [b"\n" * 70_000, b"\0" * 70_000], ids=["lines", "bytes"])
def test_the_rest_of_a_request_that_was_answered_early_closes_the_connection(
    caplog: pytest.LogCaptureFixture, rest: bytes
) -> None:
    with ExitStack() as stack:
        endpoint = stack.enter_context(bls.endpoint(stack.enter_context(bls.ModelRepository())))
        early = stack.enter_context(socket.create_connection(("127.0.0.1", endpoint.http_port), LIMIT))
        early.sendall(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n")
        assert early.recv(12) == b"HTTP/1.1 401"
        with suppress(OSError):
            early.sendall(rest)
            while early.recv(1 << 16):
                pass
    assert not caplog.records


def test_a_refused_request_leaves_no_cycle_that_keeps_its_body() -> None:
    """A body of 200 MB would otherwise stay in memory until a garbage collection."""
    body = gzip.compress(b"[" + b"0," * 50_000)
    with bls.ModelRepository() as repo, bls.endpoint(repo, token="") as endpoint:
        gc.collect()
        gc.disable()
        try:
            honest = http.client.HTTPConnection("127.0.0.1", endpoint.http_port, timeout=LIMIT)
            honest.request("POST", "/v2/repository/index", body, {"content-encoding": "gzip"})
            assert b"failed to parse" in honest.getresponse().read()
            with grpc.insecure_channel(f"127.0.0.1:{endpoint.grpc_port}") as channel:
                call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
                with pytest.raises(grpc.RpcError, match="cannot parse the request"):
                    call(b"\x3a" * 100_000, timeout=LIMIT)
            honest.request("GET", "/v2/health/live")  # the endpoint's thread is done with the others
            assert honest.getresponse().status == 200
            honest.close()
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            assert not [garbage for garbage in gc.garbage if isinstance(garbage, ProtocolError)]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()


def test_a_connection_that_its_client_resets_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    freed = threading.Event()
    lost = H11Protocol.connection_lost

    def connection_lost(self: H11Protocol, error: Exception | None) -> None:
        lost(self, error)
        weakref.finalize(self, freed.set)

    monkeypatch.setattr(H11Protocol, "connection_lost", connection_lost)
    with bls.ModelRepository() as repo, bls.endpoint(repo) as endpoint:
        client = http.client.HTTPConnection("127.0.0.1", endpoint.http_port, timeout=LIMIT)
        client.request("GET", "/v2", headers=endpoint.headers)
        assert client.getresponse().read()
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        until(lambda: gc.collect() >= 0 and freed.is_set())
