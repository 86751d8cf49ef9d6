"""HTTP: answers as they come, in any pieces, and requests that are awaited."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.backends.remote import address_of
from bls_notebook.backends.remote.http_talk import Connections
from bls_notebook.backends.remote.http_wire import Answer
from tests.backends.remote.servers import serving_http

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKS = b"3\r\nabc\r\nB;x=1\r\nd\r\n\r\nefghij\r\n0\r\n"
TENSOR = {"name": "X", "datatype": "INT32", "shape": [1]}
ANSWERS = "bls-remote-answers"


def taken(data: bytes, at_a_time: int) -> Answer:
    """Read an answer that comes in pieces; the end of the connection follows."""
    answer, left = Answer(), [data]

    def receive(into: memoryview) -> int:
        piece = left[0][: min(at_a_time, len(into))]
        into[: len(piece)] = piece
        left[0] = left[0][len(piece) :]
        return len(piece)

    while not answer.take(receive):
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
        (OK + b"Content-Length: -3\r\n\r\n", "'-3' is no number"),
        (OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "two lengths"),
        (b"HTTP/1.1 abc\r\n\r\n", "abc"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", "'-1' is no number"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabcd", "another size"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 70000, "without its size"),
        (OK + b"X: " + b"x" * 70000, "bytes of headers"),
        (OK + b"Content-Length: " + b"9" * 18 + b"\r\n\r\nab", "closed the connection"),
    ],
)
def test_what_is_no_answer(data: bytes, error: str, at_a_time: int) -> None:
    with pytest.raises((OSError, ValueError), match=error):
        taken(data, at_a_time)


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
