"""Messages that differ only in numbers and contents are sent with a header that both ends keep."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from bls_notebook.backends.processes import messages
from bls_notebook.backends.processes.messages import LARGE, Channel
from bls_notebook.pb_utils.tensor import Tensor

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs Linux or macOS")
Ends = tuple[Channel, Channel]


@pytest.fixture
def ends() -> Iterator[Ends]:
    near, far = (Channel(end) for end in socket.socketpair())
    yield near, far
    near.close()
    far.close()


def arrived(ends: Ends, key: str, call: int, *arrays: np.ndarray) -> tuple[dict[str, object], list[np.ndarray]]:
    """Send arrays in a message with this key; return the header and the arrays that arrive."""
    tensors = [Tensor("T", array) for array in arrays]
    ends[0].send_alike(key, lambda: {"op": key, "made": call}, call + 1, call, tensors)
    message = ends[1].receive()
    return message.header, [tensor._array for tensor in message.take(message.header.get("rows", ()))]


def test_alike_messages_have_their_own_numbers_and_contents_and_one_header(ends: Ends) -> None:
    for call in range(1, 4):
        header, (array,) = arrived(ends, "a", call, np.full((2, 3), call, np.int16))
        assert (header["op"], header["step"], header["call"], header["made"]) == ("a", call + 1, call, 1)
        assert array.tolist() == [[call] * 3] * 2
        array += 1  # its own memory
    header, arrays = arrived(ends, "a", 9, np.zeros(3, np.int16), np.ones(0))
    assert header["made"] == 9  # another shape
    assert [array.shape for array in arrays] == [(3,), (0,)]


@pytest.mark.parametrize("array", [np.array([b"text"], np.object_), np.zeros(LARGE, np.uint8)])
def test_text_and_large_tensors_are_sent_as_any_other(ends: Ends, array: np.ndarray) -> None:
    for call in 1, 2:
        header, (same,) = arrived(ends, "a", call, array)
        assert (header["step"], header["call"], header["made"]) == (call + 1, call, call)
        assert same.tolist() == array.tolist()


def test_the_number_of_kept_headers_is_limited(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MOST_HEADERS", 3)
    for call in range(10):
        header, _ = arrived(ends, f"key {call}", call)
        assert (header["op"], header["made"]) == (f"key {call}", call)
    assert arrived(ends, "key 0", 20)[0]["made"] == 20
    assert arrived(ends, "key 9", 20)[0]["made"] == 9
