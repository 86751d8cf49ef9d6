"""Copies in pieces by several threads: every byte arrives, whatever the size, and errors come through."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from bls_notebook.devices import cuda_gpus
from bls_notebook.devices.cuda_gpus import Staging
from tests.devices.conftest import Kit
from tests.devices.fake_cuda import FakeArray, fake_cupy

RANDOM = np.random.default_rng(8)
PIECE, SMALL = 40_000, 10_000


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_gpus, "PIECE", PIECE)
    monkeypatch.setattr(cuda_gpus, "SMALL", SMALL)


SIZES = [1, SMALL - 1, SMALL, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5, 17 * PIECE, 17 * PIECE + 3]


def bytes_of(size: int) -> np.ndarray:  # type: ignore[type-arg]
    return RANDOM.integers(0, 256, size, np.uint8)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("size", SIZES)
def test_every_byte_arrives(size: int, threads: int) -> None:
    copies = Staging(fake_cupy(set()), threads)
    host = bytes_of(size)
    there = FakeArray(np.zeros(size, np.uint8))
    copies.upload(host, there)
    assert (there.memory == host).all()
    back = copies.download(there)
    assert (back == host).all()
    assert back.flags.writeable
    assert back.flags.owndata


def test_shapes_and_types() -> None:
    copies = Staging(fake_cupy(set()))
    assert 1 <= copies._count <= 8
    host = RANDOM.random((7, 300, 500))
    there = FakeArray(np.zeros_like(host))
    copies.upload(host, there)
    back = copies.download(there)
    assert back.dtype == host.dtype
    assert (back == host).all()
    assert copies.download(FakeArray(np.zeros((0, 3)))).shape == (0, 3)


def test_pinned_memory_goes_straight(monkeypatch: pytest.MonkeyPatch) -> None:
    host = bytes_of(3 * PIECE)
    copies = Staging(fake_cupy({host.ctypes.data}), 2)
    there = FakeArray(np.zeros_like(host))
    monkeypatch.setattr(copies, "_run", None)  # not in pieces
    copies.upload(host, there)
    assert (there.memory == host).all()


@pytest.mark.parametrize("number", [0, 1, 5])
@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_comes_through_and_the_next_copy_works(number: int, threads: int) -> None:
    copies = Staging(fake_cupy(set(), fail_at=number), threads)
    host = bytes_of(6 * PIECE)
    there = FakeArray(np.zeros_like(host))
    with pytest.raises(RuntimeError, match="cudaErrorIllegalAddress"):
        copies.upload(host, there)
    copies.upload(host, there)
    assert (there.memory == host).all()


def test_threads_take_turns() -> None:
    copies = Staging(fake_cupy(set()), 2)
    hosts = [bytes_of(2 * PIECE + n) for n in range(6)]
    found: list[bool] = []

    def work(host: np.ndarray) -> None:  # type: ignore[type-arg]
        there = FakeArray(np.zeros_like(host))
        copies.upload(host, there)
        found.append(bool((copies.download(there) == host).all()))

    threads = [threading.Thread(target=work, args=(host,)) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 6


@pytest.mark.parametrize("size", [1, SMALL, 5 * PIECE + 12, 5_000_001])
def test_on_a_gpu(gpu: Kit, size: int) -> None:
    from bls_notebook.devices.transfers import to_cpu, to_gpu

    host = bytes_of(size)
    there = to_gpu(host, 0)
    assert int(there.sum(dtype=np.int64)) == int(host.sum(dtype=np.int64))
    assert (to_cpu(there) == host).all()
    del there
    strided = to_gpu(host[::2], 0)
    assert (to_cpu(strided) == host[::2]).all()
