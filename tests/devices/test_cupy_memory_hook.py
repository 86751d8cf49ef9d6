"""Allocations of CuPy's pool are seen on every thread of the engine, by a hook that each has to install."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.devices import allocation_log, cupy_memory_hook
from bls_notebook.engine.waiting.worker_threads import start_in_thread
from bls_notebook.lifetimes.allocation_table import AllocationTable
from tests.waiting import LIMIT


class Pool:
    """CuPy's rules in small: hooks are a thread's own, and freed memory is given out again."""

    def __init__(self) -> None:
        self.own = threading.local()
        pool = self

        class MemoryHook:
            name = "MemoryHook"

            def __enter__(self) -> Any:
                hooks = pool.hooks()
                if self.name in hooks:
                    raise KeyError(f"memory hook {self.name} already exists")
                hooks[self.name] = self
                return self

            def __exit__(self, *_: object) -> None:
                del pool.hooks()[self.name]

        self.cupy = SimpleNamespace(cuda=SimpleNamespace(MemoryHook=MemoryHook))

    def hooks(self) -> dict[str, Any]:
        if not hasattr(self.own, "hooks"):
            self.own.hooks = {}
        return self.own.hooks

    def malloc(self, address: int, size: int, device: int = 0) -> None:
        for hook in self.hooks().values():
            rounded = -(-size // 512) * 512
            hook.malloc_postprocess(device_id=device, size=size, mem_size=rounded, mem_ptr=address, pmem_id=1)

    def free(self, address: int, size: int, device: int = 0) -> None:
        for hook in self.hooks().values():
            hook.free_preprocess(device_id=device, mem_size=-(-size // 512) * 512, mem_ptr=address, pmem_id=1)


@pytest.fixture
def pool() -> Iterator[Pool]:
    yield Pool()
    cupy_memory_hook.end()


def begun(pool: Pool) -> tuple[allocation_log.AllocationRecorder, AllocationTable]:
    recording = allocation_log.AllocationRecorder(1 << 30, lambda: None)
    cupy_memory_hook.begin(pool.cupy, recording)
    return recording, AllocationTable(100)


def test_blocks_of_the_pool_are_lives(pool: Pool) -> None:
    recording, book = begun(pool)
    pool.free(4096, 1000)  # an older one is no life
    book.read(recording.log, recording.deaths)
    assert (list(book.blocks()), book.older["gpu:0"]) == ([], -1024)
    book.older["gpu:0"] = 0
    pool.malloc(4096, 1000)
    pool.malloc(8192, 512, device=1)
    pool.malloc(0, 10**12)  # there was not so much
    pool.free(4096, 1000)
    pool.malloc(4096, 20)  # the same address, another life
    book.read(recording.log, recording.deaths)
    assert book.in_use == {"gpu:0": 512, "gpu:1": 512}
    assert [(b.device, b.bytes, b.died >= 0) for b in book.blocks()] == [
        ("gpu:0", 1024, True),
        ("gpu:1", 512, False),
        ("gpu:0", 512, False),
    ]


def test_an_address_that_is_given_out_twice_was_free_in_between(pool: Pool) -> None:
    recording, book = begun(pool)
    pool.malloc(4096, 1000)
    pool.malloc(4096, 20)  # it was given back on a thread that nobody followed
    book.read(recording.log, recording.deaths)
    assert (book.in_use["gpu:0"], [b.died >= 0 for b in book.blocks()]) == (512, [True, False])


def test_a_part_of_a_block_is_no_block_of_its_own(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    recording, book = begun(pool)
    pool.malloc(4096, 1024)
    for address in (4096 + 256, 4096 + 1024):  # one within, as CuPy's arrays over DLPack say; one beside
        monkeypatch.setattr(allocation_log, "gpu_block", lambda _, at=address: (("gpu:0", at), 64))
        recording.moved("copy", None, None)
    pool.free(4096, 1024)
    book.read(recording.log, recording.deaths)
    assert [(b.bytes, b.died >= 0) for b in book.blocks()] == [(1024, True), (64, False)]
    assert book.older["gpu:0"] == -64


def test_worker_threads_install_the_hook_and_take_it_away(pool: Pool) -> None:
    recording, book = begun(pool)

    def in_worker(job: Any) -> None:
        done = threading.Event()
        start_in_thread(lambda: (job(), done.set()))
        assert done.wait(LIMIT)

    for address in (1, 2, 3):
        in_worker(lambda a=address: pool.malloc(a * 512, 100))
    cupy_memory_hook.end()
    in_worker(lambda: pool.malloc(9 * 512, 100))
    seen: list[dict[str, Any]] = []
    in_worker(lambda: seen.append(dict(pool.hooks())))
    assert seen == [{}]
    book.read(recording.log, recording.deaths)
    assert book.in_use["gpu:0"] == 3 * 512


def test_without_a_gpu_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy_memory_hook, "used", False)
    monkeypatch.setattr(cupy_memory_hook, "follow", lambda: pytest.fail("called"))
    with bls.track_memory(), bls.ModelRepository() as repo:
        assert repo.index() == []
