"""Clients of soak.py that send what no client should send."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import repeat
from typing import Any

import grpc
from tritonclient.grpc import service_pb2 as messages

from .clients import ANSWER_SECONDS, PREFIX, Client

BODY_MB = 64  # limit of the endpoint
TENSOR = b'{"inputs":[{"name":"X","datatype":"FP32","shape":[%d],'


class HostileClient(Client):
    """Attacks the endpoint. Each method returns the status of the answer, if it waits for one."""

    def _size(self, *sizes: int) -> int:
        """Return one of the sizes; the first one if quick."""
        return sizes[0] if self.is_quick else self.random.choice(sizes)

    def _wait(self, seconds: float) -> None:
        time.sleep(0.1 if self.is_quick else self.random.uniform(0, seconds))

    def _connect(self, port: int = 0) -> socket.socket:
        return socket.create_connection(("127.0.0.1", port or self.http_port), ANSWER_SECONDS)

    def _infer(self, body: bytes, **headers: str) -> int:
        """Send an inference request over HTTP; return the status of the answer."""
        return self.post("models/doubles/infer", body, **headers)[0]

    @contextmanager
    def _method(self, kind: str, name: str) -> Iterator[Any]:
        """Connect to the gRPC port; yield a method that takes serialized messages."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}", options) as channel:
            yield getattr(channel, kind)(f"/inference.GRPCInferenceService/{name}")

    def _call(self, message: bytes, token: bool = True) -> None:
        """Send an inference request over gRPC."""
        with self._method("unary_unary", "ModelInfer") as method:
            method(message, metadata=[*self.headers.items()] if token else (), timeout=ANSWER_SECONDS)

    @contextmanager
    def _stream(self, message: bytes, count: int) -> Iterator[Any]:
        """Send a message several times on a gRPC stream; yield its answers, and cancel it."""
        with self._method("stream_stream", "ModelStreamInfer") as method:
            answers = method(repeat(message, count), metadata=[*self.headers.items()])
            yield answers
            answers.cancel()

    def many_objects(self) -> int:
        """Send compressed JSON of millions of empty objects."""
        body = b'{"inputs":[' + b"{}," * self._size(1 << 16, 1 << 20, 4 << 20, 16 << 20) + b"1]}"
        return self._infer(gzip.compress(body, 1), content_encoding="gzip")

    def deep_json(self) -> int:
        """Send JSON of very many nested lists."""
        return self._infer(b'{"inputs":' + b"[" * self._size(1000, 100_000, 1_000_000))

    def json_numbers(self) -> int:
        """Send a large tensor as JSON."""
        count = self._size(1 << 12, 1 << 20)
        return self._infer(TENSOR % count + b'"data":[' + b"1," * (count - 1) + b"1]}]}")

    def many_dimensions(self) -> int:
        """Send a tensor with more dimensions than NumPy supports."""
        shape = b",".join([b"9"] * self._size(40, 100_000))
        return self._infer(TENSOR.replace(b"%d", shape) + b'"data":[1]}]}')

    def compression_bomb(self) -> int:
        """Send a small body that becomes large when it is decompressed."""
        body = bytes(self._size(1, BODY_MB - 4, 2 * BODY_MB) << 20)
        return self._infer(gzip.compress(body, 1), content_encoding="gzip")

    def large_tensor(self) -> int:
        """Send a correct large tensor."""
        count = self._size(1 << 16, 1 << 20, 12 << 20)
        head = TENSOR % count + b'"parameters":{"binary_data_size":%d}}]}' % (4 * count)
        return self._infer(head + bytes(4 * count), inference_header_content_length=str(len(head)))

    def wrong_length(self) -> int:
        """Send fewer or more bytes than announced."""
        head = TENSOR % 1000 + b'"parameters":{"binary_data_size":4000}}]}'
        length = str(len(head) - self.random.choice([0, 7]))
        return self._infer(head + bytes(self._size(3999, 0, 4001, 10 << 20)), inference_header_content_length=length)

    def wrong_token(self) -> int:
        """Send a large body with a wrong token."""
        return self._infer(bytes(self._size(1, 20) << 20), authorization="Bearer wrong")

    def missing_region(self) -> int:
        """Register shared memory that does not exist."""
        body = json.dumps({"key": f"/{PREFIX}missing", "offset": 0, "byte_size": 1 << 40}).encode()
        return self.post(f"systemsharedmemory/region/{self.random.random()}/register", body)[0]

    def wrong_model(self) -> int:
        """Load a model with a large file and a configuration that is not JSON."""
        parameters = {"config": "{" * self._size(10, 100_000), "file:1/model.py": "A" * self._size(10, 4 << 20)}
        return self.post("repository/models/wrong/load", json.dumps({"parameters": parameters}).encode())[0]

    def abandoned_body(self) -> None:
        """Send the beginning of a large body, and close the connection."""
        headers = {"host": "x", "content-length": "50000000", **self.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        with self._connect() as connection:
            connection.sendall(f"POST /v2/models/doubles/infer HTTP/1.1\r\n{lines}\r\n".encode() + bytes(1 << 20))
            self._wait(3)

    def abandoned_answer(self) -> int:
        """Close the connection after the beginning of a long answer."""
        body = b'{"X":[' + b"1.0," * self._size(1000, 100_000) + b"1.0]}"
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=ANSWER_SECONDS)
        with closing(connection):
            connection.request("POST", "/v2/models/streams/generate_stream", body, dict(self.headers))
            return connection.getresponse().status

    def endless_headers(self) -> None:
        """Send headers without an end, until the endpoint closes the connection."""
        with self._connect() as connection:
            connection.sendall(b"GET /v2 HTTP/1.1\r\n" + b"x: y\r\n" * self._size(10, 300, 20_000))
            if self.is_quick:
                connection.settimeout(0.1)
            connection.recv(10)

    def many_connections(self) -> None:
        """Open many connections that send nothing."""
        with ExitStack() as stack:
            for _ in range(self._size(20, 60)):
                stack.enter_context(self._connect())
            self._wait(1)

    def random_bytes(self) -> None:
        """Send random bytes to one of the ports."""
        with self._connect(self.random.choice([self.http_port, self.grpc_port])) as connection:
            connection.sendall(self.random.randbytes(self._size(10, 1000, 100_000)))
            connection.settimeout(0.1 if self.is_quick else 2)
            connection.recv(10)

    def random_message(self) -> None:
        """Send random bytes as a gRPC message."""
        self._call(self.random.randbytes(self._size(10, 10_000, 5 << 20)))

    def wrong_message(self) -> None:
        """Send a gRPC message with more bytes than its shape needs, with or without the token."""
        request = messages.ModelInferRequest(model_name="doubles")
        request.inputs.add(name="X", datatype="FP32", shape=[1])
        request.raw_input_contents.append(bytes(self._size(1, 30, BODY_MB - 1) << 20))
        self._call(request.SerializeToString(), token=self.random.random() < 0.5)

    def message_numbers(self) -> None:
        """Send a large tensor as numbers in a gRPC message, with the right or a wrong shape."""
        count = self._size(1 << 12, 1 << 20)
        request = messages.ModelInferRequest(model_name="doubles")
        tensor = request.inputs.add(name="X", datatype="FP32", shape=[self.random.choice([3, count])])
        tensor.contents.fp32_contents.extend([1.0] * count)
        self._call(request.SerializeToString())

    def silent_calls(self) -> None:
        """Begin gRPC calls without a token, and send no message."""
        over = threading.Event()
        with self._method("stream_unary", "ModelInfer") as method:
            for _ in range(10):
                method.future(iter(lambda: over.wait() and None, None))
            self._wait(1)
            over.set()

    def cancelled_stream(self) -> None:
        """Send large requests on a gRPC stream, and cancel it after the first answer."""
        count = self._size(1000, 100_000, 1_000_000)
        request = messages.ModelInferRequest(model_name="streams", raw_input_contents=[bytes(4 * count)])
        request.inputs.add(name="X", datatype="FP32", shape=[count])
        with self._stream(request.SerializeToString(), 50) as answers:
            next(answers)

    def unread_errors(self) -> None:
        """Send requests to an unknown model on a gRPC stream, and read no answer."""
        request = messages.ModelInferRequest(model_name="unknown", id="x" * self._size(1000, 200_000))
        with self._stream(request.SerializeToString(), 200):
            self._wait(1)


def send_hostile(over: threading.Event, *arguments: Any) -> tuple[Counter[str], Counter[str]]:
    """Attack until the load is over; return the counts of attacks, and of statuses and errors."""
    attacks: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    client = HostileClient(*arguments)
    for kind in client.kinds(over):
        attacks[kind] += 1
        try:
            status = getattr(client, kind)()
            outcome = "no status" if status is None else str(status)
        except grpc.RpcError as error:
            outcome = error.code().name
        except (OSError, http.client.HTTPException) as error:  # the endpoint has closed the connection
            outcome = type(error).__name__
        outcomes[outcome] += 1
    return attacks, outcomes
