"""What no client should send: the endpoint says whose mistake it was, goes on, and keeps nothing of it."""

from __future__ import annotations

import gc
import gzip
import json
import os
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb

import bls_notebook as bls
from bls_notebook.network import Endpoint
from bls_notebook.network.endpoints.grpc_stream import AnswerStream
from bls_notebook.network.limits import UNREAD_ANSWERS
from tests.engine.harness import until
from tests.shipping.fake_tritonserver import linux

MODELS = Path(__file__).with_name("client_models")
LIMIT = 1 << 16  # bytes of a body
FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def held() -> tuple[int, int]:
    gc.collect()
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0, threading.active_count()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with bls.ModelRepository(MODELS) as repo:
        repo.load("echo")
        with bls.endpoint(repo, token="", body_limit=LIMIT, patience=10.0, allow_client_shm=True) as made:
            with grpc.insecure_channel(made.grpc_url) as channel:  # what is made once is made now
                assert (speaks(made, request(BODY, LENGTH)), status(channel, MESSAGE)) == (200, "OK")
            before = held()
            yield made
            until(lambda: held() <= before, "files and threads are given back")
        assert repo.infer("echo", {"FP32": [1.0]}).error is None


ROW = np.arange(3, dtype=np.float32).tobytes()
TEXT = b"".join(struct.pack("<I", len(each)) + each for each in (b"ab", b"", b"\xff"))


def body_of(changes: dict[tuple[Any, ...], Any]) -> tuple[bytes, int]:
    row, text = ({"binary_data_size": len(each)} for each in (ROW, TEXT))
    document: Any = {
        "id": "r",
        "parameters": {"binary_data_output": True},
        "inputs": [
            {"name": "FP32", "shape": [3], "datatype": "FP32", "parameters": row},
            {"name": "BYTES", "shape": [3], "datatype": "BYTES", "parameters": text},
        ],
        "outputs": [{"name": "FP32", "parameters": {"classification": 0}}],
    }
    for path, value in changes.items():
        place = document
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
    head = json.dumps(document).encode("utf-8", "surrogatepass")
    return head + ROW + TEXT, len(head)


def request(body: bytes, length: object, content_length: object = None, **headers: str) -> bytes:
    named = {
        "host": "127.0.0.1",
        "content-length": len(body) if content_length is None else content_length,
        "inference-header-content-length": length,
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"POST /v2/models/echo/infer HTTP/1.1\r\n{lines}\r\n".encode("utf-8", "surrogatepass") + body


def speaks(endpoint: Endpoint, sent: bytes, end: bool = False) -> int:
    with socket.create_connection(("127.0.0.1", endpoint.http_port), timeout=LIMIT) as connection:
        got = b""
        try:
            connection.sendall(sent)
            if end:
                connection.shutdown(socket.SHUT_WR)
            while b"\r\n\r\n" not in got and (more := connection.recv(1 << 16)):
                got += more
        except OSError:  # it is closed already
            pass
    return int(got.split()[1]) if got else 0


PATHS = st.sampled_from([
    ("id",), ("parameters",), ("inputs",), ("outputs",), ("more",), ("inputs", 0), ("inputs", 0, "name"),
    ("inputs", 0, "shape"), ("inputs", 0, "shape", 0), ("inputs", 0, "datatype"), ("inputs", 0, "parameters"),
    ("inputs", 0, "data"), ("inputs", 1, "parameters", "binary_data_size"), ("inputs", 1, "shape"),
    ("inputs", 0, "parameters", "shared_memory_region"), ("outputs", 0), ("outputs", 0, "parameters"),
    ("outputs", 0, "parameters", "classification"), ("parameters", "sequence_id"), ("parameters", "timeout"),
    ("parameters", "priority"), ("parameters", "triton_x"), ("parameters", "binary_data_output"),
])  # fmt: skip
NUMBERS = st.sampled_from([-1, 0, 1, 2**31, 2**63, 2**64, 10**30, 1e308, float("nan")])
JUNK = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
)


@pytest.mark.slow
@FUZZ
@given(st.dictionaries(PATHS, JUNK, min_size=1, max_size=1), st.data())
def test_any_json_body_gets_an_answer(
    endpoint: Endpoint, changes: dict[tuple[Any, ...], Any], data: st.DataObject
) -> None:
    body, length = body_of(changes)
    kept = data.draw(st.just(len(body)) | st.integers(0, len(body)), "bytes that are sent")
    told = data.draw(st.just(length) | st.integers(-1, len(body) + 1) | st.text(max_size=3), "JSON's length")
    assert 200 <= speaks(endpoint, request(body[:kept], told)) < 500


@FUZZ
@given(st.binary(max_size=300))
@example(b"[" * LIMIT)
@example(b'{"inputs":' * (LIMIT // 10))
@example(b'{"inputs":[{"name":"INT64","shape":[1],"datatype":"INT64","data":[' + b"9" * 5000 + b"]}]}")
def test_bodies_that_are_not_json_are_refused(endpoint: Endpoint, body: bytes) -> None:
    assert 400 <= speaks(endpoint, request(body, len(body))) < 500


BODY, LENGTH = body_of({})
PACKED = gzip.compress(BODY)


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (request(gzip.compress(bytes(LIMIT * 100)), 9, content_encoding="gzip"), {400}),
        (request(PACKED[:-9], LENGTH, content_encoding="gzip"), {400}),
        (request(BODY, LENGTH, content_encoding="gzip"), {400}),
        (request(BODY, LENGTH, content_encoding="br"), {501}),
        (request(bytes(LIMIT + 1), 9), {400}),
        (request(b"", 9, content_length=10**30), {400}),
        (request(BODY, LENGTH, content_length=len(BODY) + 1), {0, 400}),  # nobody waits for the answer
        (request(BODY, LENGTH, content_length=len(BODY) - 1), {400}),
        (request(BODY, LENGTH, content_length="x"), {400}),
        (request(BODY, LENGTH, content_length=-1), {400}),
        (request(BODY, LENGTH, huge="x" * (1 << 17)), {400, 431}),
        (request(BODY, LENGTH, **{f"many_{n}": "x" * 99 for n in range(999)}), {400, 431}),
        (request(BODY, LENGTH).replace(b"POST", b"P\xd6ST"), {400}),
        (request(BODY, LENGTH).replace(b"/echo/", b"/../../etc/"), {404}),
        (request(BODY, LENGTH).replace(b"/echo/", b"/%2e%2e%2f%00\xff/"), {400, 404}),
        (request(BODY, LENGTH).replace(b"content-length", b"transfer-encoding: chunked\r\nx", 1), {0, 400}),
        (b"", {0}),
        (b"\x16\x03\x01" + bytes(200), {0, 400}),
    ],
    ids=lambda value: None if isinstance(value, set) else str(len(value)),
)
def test_damaged_http_requests_are_refused(endpoint: Endpoint, sent: bytes, statuses: set[int]) -> None:
    assert speaks(endpoint, sent, end=0 in statuses) in statuses


INFER, STREAM = (f"/inference.GRPCInferenceService/Model{each}Infer" for each in ("", "Stream"))
MISTAKES = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED"}
MESSAGE = pb.ModelInferRequest(
    model_name="echo",
    inputs=[
        pb.ModelInferRequest.InferInputTensor(name="FP32", datatype="FP32", shape=[3]),
        pb.ModelInferRequest.InferInputTensor(name="BYTES", datatype="BYTES", shape=[3]),
    ],
    raw_input_contents=[ROW, TEXT],
).SerializeToString()


@pytest.fixture(scope="module")
def channel(endpoint: Endpoint) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(endpoint.grpc_url) as made:
        yield made


def status(channel: grpc.Channel, message: bytes, way: str = INFER) -> str:
    try:
        if way == STREAM:
            list(channel.stream_stream(way)(iter([message]), timeout=LIMIT))
        else:
            channel.unary_unary(way)(message, timeout=LIMIT)
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


@FUZZ
@given(
    st.dictionaries(st.integers(0, len(MESSAGE) - 1), st.integers(0, 255), max_size=3),
    st.integers(0, len(MESSAGE)),
    st.sampled_from([INFER, STREAM]),
)
def test_damaged_grpc_messages_are_refused(channel: grpc.Channel, changes: dict[int, int], kept: int, way: str) -> None:
    message = bytearray(MESSAGE)
    for at, value in changes.items():
        message[at] = value
    assert status(channel, bytes(message[:kept] if not changes else message), way) in MISTAKES


def test_a_stream_answers_a_request_of_wrong_size(channel: grpc.Channel) -> None:
    message = pb.ModelInferRequest.FromString(MESSAGE)
    message.raw_input_contents[0] = b"x"
    (answer,) = channel.stream_stream(STREAM)(iter([message.SerializeToString()]), timeout=LIMIT)
    assert b"input byte size mismatch" in answer
    del message.raw_input_contents[:]
    assert status(channel, message.SerializeToString()) == "INVALID_ARGUMENT"


@pytest.mark.slow
def test_a_stream_whose_client_does_not_read_is_paused(channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    unread: list[int] = []
    paused, room = threading.Event(), AnswerStream.room

    async def counted(stream: AnswerStream) -> None:
        unread.append(stream._queue.qsize() + stream._waiting)
        if stream._is_full():
            paused.set()
        await room(stream)

    monkeypatch.setattr(AnswerStream, "room", counted)
    messages = [pb.ModelInferRequest(model_name="nowhere" * 9000).SerializeToString()] * 600
    answers = channel.stream_stream(STREAM)(iter(messages), timeout=LIMIT)
    assert paused.wait(LIMIT)
    assert sum(1 for _ in answers) == len(messages)
    assert max(unread) == UNREAD_ANSWERS + 1


@linux
@pytest.mark.parametrize(("offset", "size"), [(-1, 12), (0, -1), (60, 12), (0, 2**62), (2**62, 2**62)])
def test_parts_outside_a_region_are_refused(endpoint: Endpoint, channel: grpc.Channel, offset: int, size: int) -> None:
    key = f"/bls_notebook_malformed_{os.getpid()}"
    memory = Path(f"/dev/shm{key}")
    memory.write_bytes(bytes(64))
    register = pb.SystemSharedMemoryRegisterRequest(name="region", key=key, byte_size=64)
    service = "/inference.GRPCInferenceService/SystemSharedMemory"
    try:
        assert status(channel, register.SerializeToString(), f"{service}Register") == "OK"
        where: dict[str, Any] = {"shared_memory_region": "region"}
        where |= {"shared_memory_offset": offset, "shared_memory_byte_size": size}
        body, length = body_of({("inputs", 0, "parameters"): where})
        assert speaks(endpoint, request(body, length)) == 400
        body, length = body_of({("outputs", 0, "parameters"): where})
        assert speaks(endpoint, request(body, length)) == 400
        message = pb.ModelInferRequest.FromString(MESSAGE)
        for name, value in where.items():
            parameter = message.inputs[0].parameters[name]
            setattr(parameter, "string_param" if isinstance(value, str) else "int64_param", value)
        del message.raw_input_contents[0]
        assert status(channel, message.SerializeToString()) == "INVALID_ARGUMENT"
    finally:
        status(channel, b"", f"{service}Unregister")
        memory.unlink()
