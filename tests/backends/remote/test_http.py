"""HTTP: answers as they come, in any pieces, and requests that are awaited."""

from __future__ import annotations

import asyncio
import gc
import http.client
import io
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.backends.errors import BackendError
from bls_notebook.network.connection import address_of
from bls_notebook.network.connection.http_link import HttpLink
from bls_notebook.network.connection.http_talk import Connections, Conversation
from bls_notebook.network.connection.http_wire import Answer
from bls_notebook.network.connection.link import RemoteError
from bls_notebook.network.connection.opening import open_link
from tests.backends.remote.servers import serving_http

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKS = b"3\r\nabc\r\nB;x=1\r\nd\r\n\r\nefghij\r\n0\r\n"
TENSOR = {"name": "X", "datatype": "INT32", "shape": [1]}
ANSWERS = "bls-remote-answers"


def taken(data: bytes, at_a_time: int) -> Answer:
    """Read an answer that comes in pieces; the end of the connection follows."""
    answer, stream = Answer(), io.BytesIO(data)
    while not answer.take(lambda most: stream.read(min(most, at_a_time))):
        pass
    return answer


@pytest.mark.parametrize("at_a_time", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    ("data", "body", "will_close"),
    [
        (OK + b"Content-Length: 3\r\n\r\nabc", b"abc", False),
        (OK + b"Content-Length: 0\r\n\r\n", b"", False),
        (OK + b"content-length:9000\r\nX: \r\n\r\n" + b"x" * 9000, b"x" * 9000, False),
        (OK + b"Content-Length: 1\r\nConnection: Close\r\n\r\na", b"a", True),
        (OK + b"\r\n" + b"y" * 5000, b"y" * 5000, True),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS + b"\r\n", b"abcd\r\n\r\nefghij", False),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS + b"T: 1\r\n\r\n", b"abcd\r\n\r\nefghij", False),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nab", b"ab", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", False),
        (b"HTTP/1.0 200\r\nContent-Length: 1\r\n\r\na", b"a", True),
        (b"HTTP/1.0 200\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na", b"a", False),
    ],
)
def test_answers_in_pieces(data: bytes, body: bytes, will_close: bool, at_a_time: int) -> None:
    answer = taken(data, at_a_time)
    assert (answer.body, answer.will_close) == (body, will_close)


def test_what_comes_after_an_answer_ends_its_connection() -> None:
    answer = taken(OK + b"Content-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\n", 1 << 20)
    assert (answer.body, answer.will_close) == (b"a", True)


@pytest.mark.parametrize("at_a_time", [50, 1 << 20])
@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"SSH-2.0-x\r\n\r\n", "does not speak HTTP"),
        (b"", "closed the connection"),
        (OK + b"Content-Length: 3\r\n\r\nab", "closed the connection"),
        (OK + b"Content-Length: -3\r\n\r\n", "Invalid character in Content-Length"),
        (OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "Duplicate Content-Length"),
        (b"HTTP/1.1 abc\r\n\r\n", "Invalid status code"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", "Invalid character in chunk size"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabcd", "Expected"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 70000, "Chunk size overflow"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 140000, "bytes of headers"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nT: " + b"x" * 140000, "bytes of headers"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n", "closed the connection"),
        (OK + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n", "closed the connection"),
        (OK + b"X: " + b"x" * 140000, "bytes of headers"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 9000, "bytes of headers"),
        (b"HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "another protocol"),
        (OK + b"Content-Length: " + b"9" * 18 + b"\r\n\r\nab", "closed the connection"),
    ],
)
def test_what_is_no_answer(data: bytes, error: str, at_a_time: int) -> None:
    with pytest.raises((OSError, ValueError), match=error):
        taken(data, at_a_time)


NO_BODY = (204, 304)
PRINTABLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=8)


@st.composite
def answers(draw: st.DrawFn, most_interim: int) -> bytes:
    """An answer as a server may send it: after interim ones, and of each kind of body."""
    status, body = draw(st.sampled_from([200, 204, 304, 400, 404, 500, 503])), draw(st.binary(max_size=60))
    version = draw(st.sampled_from(["1.0", "1.1"]))
    headers = [f"X-{i}:{value}" for i, value in enumerate(draw(st.lists(PRINTABLE, max_size=3)))]
    if option := draw(st.sampled_from(["", "close", "keep-alive"])):
        headers.append(f"Connection: {option}")
    kinds = ["length", "chunks", "end"] if version == "1.1" else ["length", "end"]
    kind = "length" if status in NO_BODY else draw(st.sampled_from(kinds))
    if kind == "length":
        headers.append(f"CONTENT-length: {len(body)}")
    elif kind == "chunks":
        headers.append("Transfer-Encoding: chunked")
        size = draw(st.integers(1, 20))
        chunks = [body[i : i + size] for i in range(0, len(body), size)]
        extension = draw(st.sampled_from([b"", b";x=1"]))
        body = b"".join(b"%x%s\r\n%s\r\n" % (len(c), extension, c) for c in chunks)
        body += b"0\r\n" + draw(st.sampled_from([b"", b"T: 1\r\n"])) + b"\r\n"
    if status in NO_BODY:
        body = b""
    head = "\r\n".join([f"HTTP/{version} {status} {draw(PRINTABLE)}", *headers, "\r\n"])
    interim = b"HTTP/1.1 100 Continue\r\nX-0: early\r\n\r\n" * draw(st.integers(0, most_interim))
    return interim + head.encode() + body


def told(data: bytes, at_a_time: int) -> Any:
    try:
        answer = taken(data, at_a_time)
    except (OSError, ValueError):
        return None
    return answer.status, answer.headers, bytes(answer.body)


def told_by_http_client(data: bytes) -> Any:
    response = http.client.HTTPResponse(SimpleNamespace(makefile=lambda _: io.BytesIO(data)))  # type: ignore[arg-type]
    try:
        response.begin()
        body = response.read()
    except (OSError, ValueError, http.client.HTTPException):
        return None
    headers: dict[str, str] = {}
    for name, value in response.getheaders():
        headers.setdefault(name.lower(), value.strip())
    return response.status, headers, body


@settings(max_examples=150, deadline=None)
@given(answers(2), st.integers(1, 80))
def test_answers_are_read_as_http_client_reads_them(data: bytes, at_a_time: int) -> None:
    assert told(data, at_a_time) == told_by_http_client(data) is not None


@settings(max_examples=150, deadline=None)
@given(answers(0), st.integers(1, 80), st.data())
def test_damaged_answers_are_errors_or_read_as_http_client_reads_them(
    data: bytes, at_a_time: int, draws: st.DataObject
) -> None:
    at, taken_away = draws.draw(st.integers(0, len(data))), draws.draw(st.integers(0, 4))
    put = draws.draw(
        st.sampled_from([b"", b"\r\n", b"\n", b":", b" ", b"0", b"-1", b"f", b"HTTP/1.1 200 OK\r\n"])
    )
    damaged = data[:at] + put + data[at + taken_away :]
    found = told(damaged, at_a_time)
    assert found == told(damaged, 1 << 20)
    if found is not None and found[0] not in NO_BODY:  # of these http.client reads chunks
        assert found == told_by_http_client(damaged)


@pytest.fixture
def asked() -> Iterator[tuple[HttpLink, Conversation, socket.socket, socket.socket]]:
    """A link, a request to be sent over its one connection, and both ends of that."""
    link = HttpLink(address_of("http://127.0.0.1:9"))
    here, there = socket.socketpair()
    with here, there:
        link._connections.keep(here)
        yield link, link._talk("GET", "/v2", (), {}), here, there
        link.close()


def test_what_is_given_up_once_it_is_answered_leaves_the_connection_to_others(asked: Any) -> None:
    link, conversation, here, there = asked
    answering = threading.Thread(
        target=lambda: there.recv(1 << 16) and there.send(OK + b"Content-Length: 1\r\n\r\na")
    )
    answering.start()
    assert conversation.held(20).body == b"a"
    answering.join()
    conversation.end()
    assert link._connections.kept(20) is here
    here.send(b"x")
    assert there.recv(1) == b"x"


def test_nothing_is_sent_over_a_link_that_is_closed(asked: Any) -> None:
    link, conversation, here, there = asked
    link.closed = True  # and not yet hung up
    assert not conversation.begun(lambda _: None, lambda _: None)
    with pytest.raises(RemoteError, match="was closed before"):
        conversation.held(20)
    assert here.fileno() < 0
    assert there.recv(1) == b""


def test_what_is_given_up_is_not_sent_without_its_encryption(asked: Any) -> None:
    _, conversation, _, _ = asked
    here, there = socket.socketpair()
    context = ssl.create_default_context()
    with there, context.wrap_socket(here, server_hostname="x", do_handshake_on_connect=False) as encrypted:
        conversation._use(encrypted)
        conversation.end()
        assert there.recv(1) == b""
        with pytest.raises(OSError):
            encrypted.unwrap()


@pytest.mark.parametrize(
    ("scheme", "module", "package"), [("http", "http_wire", "httptools"), ("grpc", "grpc_link", "grpc")]
)
def test_a_package_that_is_not_there(
    scheme: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (module, f"{scheme}_link", "http_talk"):
        monkeypatch.delitem(sys.modules, f"bls_notebook.network.connection.{name}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BackendError, match=rf"needs {package}.*pip install 'bls_notebook\[network\]'"):
        open_link(address_of(f"{scheme}://127.0.0.1:9"))


class Server:
    """Answers with the input of a request; waits with it, or closes the connection, where told to."""

    def __init__(self) -> None:
        self.came = threading.Semaphore(0)
        self.go = threading.Event()
        self.go.set()
        self.gone = False

    def answer(self, path: str, document: dict[str, Any]) -> tuple[int, Any]:
        if not path.endswith("/infer"):
            return 200, {"name": "m", "inputs": [TENSOR], "outputs": [TENSOR]}
        self.came.release()
        if not self.go.wait(20):
            self.go.set()  # for the test to see
        return 0 if self.gone else 200, {"outputs": document["inputs"]}


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def repo(server: Server) -> Iterator[bls.ModelRepository]:
    with serving_http(server.answer) as port, bls.ModelRepository() as repo:
        bls.connect(f"http://127.0.0.1:{port}", "m", repo=repo)
        yield repo
        server.go.set()


def wanted(repo: bls.ModelRepository, value: int) -> Any:
    return repo.infer_async("m", {"X": np.array([value], np.int32)})


async def gathered(repo: bls.ModelRepository, count: int) -> list[Any]:
    answers = await asyncio.gather(*[wanted(repo, i) for i in range(count)])
    return [a.error or int(a["X"].as_numpy()[0]) for a in answers]


def test_ctrl_c_ends_a_wait_for_a_server(repo: bls.ModelRepository, server: Server) -> None:
    assert repo.infer("m", {"X": np.array([0], np.int32)}).error is None
    server.came.acquire()
    server.go.clear()

    def press() -> None:
        server.came.acquire()
        os.kill(os.getpid(), signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        repo.infer("m", {"X": np.array([1], np.int32)})
    assert not server.go.is_set()
    pressing.join()
    server.go.set()
    assert asyncio.run(gathered(repo, 2)) == [0, 1]


def receivers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == ANSWERS]


def test_awaited_requests_go_over_open_connections_and_have_one_thread(repo: bls.ModelRepository) -> None:
    before = len(receivers())
    for _ in range(3):  # the first opens the connections
        assert asyncio.run(gathered(repo, 5)) == list(range(5))
    new = receivers()
    assert len(new) == before + 1
    repo.close()
    for thread in new:
        thread.join(20)
        assert not thread.is_alive()


def awaiting(repo: bls.ModelRepository, server: Server, then: Callable[[Any], None]) -> Any:
    """Have a request under way whose connection was open; then something happens, and it is answered."""

    async def all_of_it() -> Any:
        await wanted(repo, 0)
        server.came.acquire()
        server.go.clear()
        task = asyncio.ensure_future(wanted(repo, 1))
        await asyncio.to_thread(server.came.acquire)
        then(task)
        await asyncio.wait([task], timeout=20)
        return task

    return asyncio.run(all_of_it())


def test_an_awaited_request_whose_connection_is_closed(repo: bls.ModelRepository, server: Server) -> None:
    def close(_: Any) -> None:
        server.gone = True
        server.go.set()

    error = awaiting(repo, server, close).result().error
    assert "the connection was lost while the request was under way" in error.message()


def test_an_awaited_request_that_is_given_up(repo: bls.ModelRepository, server: Server) -> None:
    assert awaiting(repo, server, lambda task: task.cancel()).cancelled()
    server.go.set()
    assert asyncio.run(gathered(repo, 2)) == [0, 1]


def test_closing_answers_what_is_awaited(repo: bls.ModelRepository, server: Server) -> None:
    task = awaiting(repo, server, lambda _: repo.close(0))
    message = task.result().error.message()
    assert "closed" in message or "cancelled" in message  # whichever comes first of what closing does


def test_a_link_that_nobody_closes_leaves_no_thread() -> None:
    connections = Connections(address_of("http://127.0.0.1:9"))
    receiver = connections.receiver
    if receiver is None:
        pytest.skip("no thread receives answers on this system")
    here, there = socket.socketpair()
    with here, there:
        called = threading.Event()
        there.send(b"x")

        def more() -> bool:
            called.set()
            return True

        assert receiver.watch(here, more)
        assert called.wait(20)
        thread = receiver._thread
        del connections, receiver
        gc.collect()
        assert thread is not None
        thread.join(20)
        assert not thread.is_alive()
