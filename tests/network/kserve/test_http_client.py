"""The HTTP client: answers in any form, requests that are cancelled, limits of size and time."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.backends.protocol import BackendError
from bls_notebook.network.kserve import http_client
from bls_notebook.network.kserve.address import address_of
from bls_notebook.network.kserve.client import ServerError
from bls_notebook.network.kserve.http_client import HttpClient, HttpExchange
from bls_notebook.network.remote_models import open_link
from bls_notebook.pb_utils import InferenceRequest, InferenceResponse
from tests.network.servers import Service, serving_echo
from tests.waiting import LIMIT

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"3\r\nabc\r\nB;x=1\r\nd\r\n\r\nefghij\r\n0\r\n"


@contextmanager
def answering(data: bytes, endless: bytes = b"") -> Iterator[HttpClient]:
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection = listening.accept()[0]
            except OSError:  # the test is over
                return
            with connection:
                try:
                    connection.recv(1 << 16)
                    connection.sendall(data)
                    while endless:
                        connection.sendall(endless)
                except OSError:  # the client has closed it
                    pass

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    link = HttpClient(address_of(f"http://127.0.0.1:{listening.getsockname()[1]}"))
    try:
        yield link
    finally:
        link.close()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        serving.join(LIMIT)
        assert not serving.is_alive(), "the server still sends: the client left the connection open"


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (OK + b"Content-Length: 3\r\n\r\nabc", b"abc"),
        (OK + b"Content-Length: 0\r\n\r\n", b""),
        (OK + b"content-length:9000\r\nX: \r\n\r\n" + b"x" * 9000, b"x" * 9000),
        (OK + b"Content-Length: %d\r\n\r\n" % (9 << 20) + b"x" * (9 << 20), b"x" * (9 << 20)),
        (OK + b"\r\n" + b"y" * 5000, b"y" * 5000),
        (CHUNKED + CHUNKS + b"\r\n", b"abcd\r\n\r\nefghij"),
        (CHUNKED + CHUNKS + b"T: 1\r\n\r\n", b"abcd\r\n\r\nefghij"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nab", b"ab"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.0 200\r\nContent-Length: 1\r\n\r\na", b"a"),
    ],
)
def test_an_answer(data: bytes, body: bytes) -> None:
    with answering(data) as link:
        assert HttpExchange(link, "GET", "/v2", (), {}).answer(20).body == body


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"SSH-2.0-x\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 abc\r\n\r\n", "does not speak HTTP"),
        (b"", "closed the connection"),
        (OK + b"Content-Length: 3\r\n\r\nab", "before its answer was complete"),
        (OK + b"Content-Length: %d\r\n\r\nab" % (9 << 20), "before its answer was complete"),
        (CHUNKED + b"-1\r\n", "before its answer was complete"),
        (CHUNKED + b"1\r\na\r\n", "before its answer was complete"),
        (CHUNKED + b"1;" + b"x" * 140000, "more than 65536 bytes"),
        (OK + b"X: " + b"x" * 140000, "65536"),
        (OK + b"X: x\r\n" * 1000, "100 headers"),
        (OK + b"Content-Length: " + b"9" * 18 + b"\r\n\r\nab", "exceeds the limit of 16,777,216 bytes"),
    ],
)
def test_malformed_answers_are_errors(data: bytes, error: str) -> None:
    with answering(data) as link, pytest.raises(ServerError, match=error):
        HttpExchange(link, "GET", "/v2", (), {}).answer(20)


def test_an_answer_that_never_ends_is_an_error_at_the_limit() -> None:
    piece = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    with answering(CHUNKED, piece) as link, pytest.raises(ServerError, match="exceeds the limit of 16,777,216 bytes"):
        link.describe()


@pytest.mark.parametrize(("data", "endless"), [(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), (CHUNKED, b"1\r\n \r\n")])
def test_an_answer_that_trickles_is_an_error_after_the_timeout(data: bytes, endless: bytes) -> None:
    with answering(data, endless) as link, pytest.raises(ServerError, match=r"no answer within 0\.2 s|more than"):
        HttpExchange(link, "GET", "/v2", (), {}).answer(0.2)


def test_a_response_to_a_request_is_limited_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "INFER_BYTES", 1000)
    big = OK + b"Content-Length: 1001\r\n\r\n" + b"x" * 1001
    with answering(big) as link:
        request = InferenceRequest(model_name="m", requested_output_names=["Y"], inputs=[])
        responses: list[InferenceResponse] = []
        link.exchange("m", "", request, True).start(lambda box, _: responses.extend(box), lambda work: work())
        assert "exceeds the limit of 1,000 bytes" in str(responses[0]._error)


@pytest.fixture
def asked() -> Iterator[tuple[HttpClient, HttpExchange, socket.socket, socket.socket]]:
    link = HttpClient(address_of("http://127.0.0.1:9"))
    here, there = socket.socketpair()
    with here, there:
        connection = http.client.HTTPConnection("127.0.0.1", 9)
        connection.sock = here
        link.connections.give_back(connection)
        yield link, HttpExchange(link, "GET", "/v2", (), {}), here, there
        link.close()


def test_cancelling_an_answered_request_keeps_the_connection_open(asked: Any) -> None:
    link, exchange, here, there = asked
    answering = threading.Thread(target=lambda: there.recv(1 << 16) and there.send(OK + b"Content-Length: 1\r\n\r\na"))
    answering.start()
    assert exchange.answer(20).body == b"a"
    answering.join()
    exchange.cancel()
    connection = link.connections.take()
    assert connection.sock is here
    here.send(b"x")
    assert there.recv(1) == b"x"


def test_a_closed_client_sends_nothing(asked: Any) -> None:
    link, exchange, here, there = asked
    link.closed = True  # and not yet hung up
    with pytest.raises(ServerError, match="was closed before"):
        exchange.answer(20)
    assert here.fileno() < 0
    assert there.recv(1) == b""


def test_a_cancelled_tls_request_sends_nothing_unencrypted(asked: Any) -> None:
    _, exchange, _, _ = asked
    here, there = socket.socketpair()
    context = ssl.create_default_context()
    with there, context.wrap_socket(here, server_hostname="x", do_handshake_on_connect=False) as encrypted:
        exchange._socket = encrypted
        exchange.cancel()
        assert there.recv(1) == b""
        with pytest.raises(OSError):
            encrypted.unwrap()


def test_a_missing_grpc_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "bls_notebook.network.kserve.grpc_client", raising=False)
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(BackendError, match=r"needs grpc.*pip install 'bls_notebook\[network\]'"):
        open_link(address_of("grpc://127.0.0.1:9"))


@pytest.fixture
def repo(service: Service) -> Iterator[bls.ModelRepository]:
    with serving_echo(service) as port, bls.ModelRepository() as repo:
        bls.connect(f"http://127.0.0.1:{port}", "echo", repo=repo)
        yield repo


async def gathered(repo: bls.ModelRepository, count: int) -> list[Any]:
    answers = await asyncio.gather(*[repo.infer_async("echo", {"X": np.array([i], np.float32)}) for i in range(count)])
    return [a.error or int(a["X"].as_numpy()[0]) for a in answers]


def test_awaited_requests_reuse_connections(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, opening = [], http_client.Connections.open
    monkeypatch.setattr(http_client.Connections, "open", lambda *given: opened.append(opening(*given)) or opened[-1])
    for _ in range(3):
        assert asyncio.run(gathered(repo, 5)) == list(range(5))
    assert len(opened) <= 5


def test_an_awaited_request_whose_connection_is_closed(repo: bls.ModelRepository, service: Service) -> None:
    assert asyncio.run(gathered(repo, 2)) == [0, 1]
    service.gone = True
    (error,) = asyncio.run(gathered(repo, 1))
    assert "the connection was lost during the request" in error.message()
