"""Who watches memory is told of everything, once, and nothing is told where nobody watches."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.devices import allocation_log
from tests.devices.book import Book
from tests.devices.conftest import Kit
from tests.devices.models import CUPY_DOUBLE, KEEP, define


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> Book:
    monkeypatch.setattr(allocation_log, "recording", Book())
    return allocation_log.recording  # type: ignore[return-value]


def test_the_log_has_the_blocks_that_are_alive(simulated: Kit, book: Book) -> None:
    x = simulated.cupy.zeros(100, np.uint8)
    y = x[5:]
    z = x + y[0]
    assert sorted(book.alive.values()) == [("gpu:0", 100)] * 2
    del x, z
    assert sorted(book.alive.values()) == [("gpu:0", 100)]
    capsule = y.__dlpack__()
    del y
    assert len(book.alive) == 1
    del capsule
    assert book.alive == {}
    with pytest.raises(MemoryError):  # memory that is refused was never allocated
        simulated.cupy.zeros(1 << 30, np.uint8)
    assert book.alive == {}


@pytest.mark.parametrize(("given", "force_cpu", "preferred", "expected"), [
    ("cpu", False, None, []),
    ("gpu", False, None, [("copy", "gpu:0", 4000)]),  # the notebook holds it
    ("gpu", True, None, [("transfer", "gpu:0", "cpu", 4000)]),
    ("cpu", False, "gpu:0", [("transfer", "cpu", "gpu:0", 4000)]),
    ("gpu", False, "cpu", [("copy", "gpu:0", 4000), ("transfer", "gpu:0", "cpu", 4000)]),
    ("gpu", True, "gpu:0", [("transfer", "gpu:0", "cpu", 4000), ("transfer", "cpu", "gpu:0", 4000)]),
])  # fmt: skip
@pytest.mark.parametrize("way", ["infer", "infer_async"])
def test_the_log_has_copies_and_transfers_of_the_engine(
    gpu: Kit,
    repo: bls.ModelRepository,
    book: Book,
    given: str,
    force_cpu: bool,
    preferred: str | None,
    expected: list[Any],
    way: str,
) -> None:
    define(repo, "keep", KEEP, force_cpu=force_cpu)
    host = np.zeros(1000, np.float32)
    array = host if given == "cpu" else gpu.array(host)
    book.events.clear()
    if way == "infer":
        response = repo.infer("keep", {"IN": array}, preferred_memory=preferred)
    else:
        response = asyncio.run(repo.infer_async("keep", {"IN": array}, preferred_memory=preferred))
    assert response.error is None
    assert book.events == expected


def test_from_gpu_to_gpu(two: Kit, repo: bls.ModelRepository, book: Book) -> None:
    define(repo, "double", CUPY_DOUBLE)
    array = two.array(np.zeros(1000), index=1)
    book.events.clear()
    response = repo.infer("double", {"IN": array}, preferred_memory="gpu:0")
    assert response.error is None
    assert book.events == [("copy", "gpu:1", 4000), ("transfer", "gpu:1", "gpu:0", 4000)]


def test_a_models_own_transfers_are_told_on_a_simulated_gpu(simulated: Kit, book: Book) -> None:
    x = simulated.cupy.asarray(np.zeros(10, np.uint8))
    x.get()
    x.set(np.ones(10, np.uint8))
    x[:] = np.ones(10, np.uint8)
    simulated.cupy.asnumpy(x)
    there, back = ("transfer", "cpu", "gpu:0", 10), ("transfer", "gpu:0", "cpu", 10)
    assert book.events == [there, back, there, there, back]
