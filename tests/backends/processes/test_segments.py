"""The memory files of a channel: used again when the receiver has dropped the tensor, and never before."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from bls_notebook.backends.processes.messages import LARGE, Channel
from bls_notebook.backends.processes.segments import KEPT_BYTES
from bls_notebook.pb_utils.tensor import Tensor

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has memory files")
Ends = tuple[Channel, Channel]


@pytest.fixture
def ends() -> Iterator[Ends]:
    files = len(os.listdir("/proc/self/fd"))
    pair = [Channel(end) for end in socket.socketpair()]
    yield pair[0], pair[1]
    for channel in pair:
        channel.close()
    del channel, pair
    assert len(os.listdir("/proc/self/fd")) <= files


def sent(ends: Ends, value: int, size: int = LARGE) -> np.ndarray:
    ends[0].send({}, [Tensor("X", np.full(size, value, np.uint8))])
    message = ends[1].receive()
    (tensor,) = message.take(message.header["rows"])
    array = tensor.as_numpy()
    assert array.flags.writeable
    assert (array == value).all()
    return array


def place(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_is_used_again_only_when_no_view_is_left(ends: Ends) -> None:
    first = sent(ends, 1)
    view, second = first[5:10], sent(ends, 2)
    assert place(second) != place(first)
    at = place(first)
    del first
    assert place(sent(ends, 3)) != at
    assert view.tolist() == [1] * 5
    del view
    assert place(sent(ends, 4)) == at
    assert (second == 2).all()


def test_a_message_that_is_dropped_frees_its_memory(ends: Ends) -> None:
    at = place(sent(ends, 1))
    ends[0].send({}, [Tensor("X", np.zeros(LARGE, np.uint8))])
    ends[1].receive()
    assert place(sent(ends, 2)) == at


def test_memory_that_is_kept_has_a_limit(ends: Ends) -> None:
    size = KEPT_BYTES // 4
    arrays = [sent(ends, value, size) for value in range(6)]
    assert len({place(array) for array in arrays}) == 6
    assert [int(array[0]) for array in arrays] == list(range(6))
    arrays.clear()
    assert int(sent(ends, 7, 2 * size)[-1]) == 7  # in place of smaller ones
    assert int(sent(ends, 8, size)[-1]) == 8


def test_a_forked_child_frees_nothing(ends: Ends) -> None:
    array = sent(ends, 1)
    child = os.fork()
    if not child:
        del array
        os._exit(0)
    os.waitpid(child, 0)
    assert place(sent(ends, 2)) != place(array)
    assert (array == 1).all()
