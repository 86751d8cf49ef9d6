"""The memory of simulated GPUs: what counts, until when, and what happens when there is no more."""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.devices.device import OutOfMemoryError
from bls_notebook.devices.registry import gpus
from tests.devices.conftest import CAPACITY, Kit


def test_out_of_memory(gpu: Kit) -> None:
    cupy = gpu.cupy
    before = gpu.used()
    _, total = cupy.cuda.Device(0).mem_info
    with pytest.raises(MemoryError, match=r"Out of memory allocating [\d,]+ bytes \(allocated so far: ") as caught:
        cupy.empty(2 * total, np.uint8)
    assert isinstance(caught.value, cupy.cuda.memory.OutOfMemoryError)
    assert gpu.used() == before
    cupy.ones(1000)  # and it goes on


def test_out_of_memory_says_where(simulated: Kit) -> None:
    with pytest.raises(
        OutOfMemoryError,
        match=r"allocating 16,777,217 bytes \(allocated so far: 0 bytes, limit set to: 16,777,216 bytes\) on "
        r"gpu:0 \(simulated\)\.",
    ):
        simulated.cupy.zeros(CAPACITY + 1, np.uint8)
    x = simulated.cupy.zeros(CAPACITY, np.uint8)  # all of it can be used
    with pytest.raises(OutOfMemoryError):
        x + 1
    del x
    simulated.cupy.zeros(CAPACITY, np.uint8)
    error = OutOfMemoryError(1, 2, 3, "gpu:0 (simulated)")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("holder", [
    lambda x: x, lambda x: x[1:], lambda x: x.reshape(2, -1)[1], lambda x: np.broadcast_to(x, (3, x.size)),
    lambda x: x.__dlpack__(), lambda x: x[5:].__dlpack__(), lambda x: x.data, lambda x: bls.cupy().from_dlpack(x),
    lambda x: bls.cupy().from_dlpack(bls.cupy().from_dlpack(x)[7:])[1:],
    lambda x: np.transpose(bls.cupy().from_dlpack(x)),
    lambda x: bls.pb_utils.Tensor.from_dlpack("T", x).to_dlpack(),
    lambda x: bls.cupy().from_dlpack(bls.pb_utils.Tensor.from_dlpack("T", x.__dlpack__()).to_dlpack()),
])  # fmt: skip
def test_memory_counts_until_its_last_holder_is_gone(gpu: Kit, holder: Callable[[Any], Any]) -> None:
    before = gpu.used()
    x = gpu.cupy.zeros(1024, np.float32)
    size = gpu.used() - before
    assert size == 4096
    held = holder(x)
    del x
    assert gpu.used() - before == size
    del held
    assert gpu.used() == before


def test_each_gpu_counts_for_itself(two: Kit) -> None:
    before = two.used(0), two.used(1)
    x = two.array(np.zeros(256), index=1)
    assert (two.used(0), two.used(1)) == (before[0], before[1] + 1024)
    del x
    assert (two.used(0), two.used(1)) == before


def test_threads_that_take_and_free_leave_nothing(simulated: Kit) -> None:
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        kept: list[Any] = []
        try:
            for _ in range(100):
                try:
                    kept.append(simulated.cupy.empty(chance.randrange(1, 1 << 20), np.uint8))
                    assert simulated.used() <= CAPACITY
                except OutOfMemoryError:
                    kept.clear()
                if chance.random() < 0.4:
                    del kept[: chance.randrange(4)]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert simulated.used() == 0


def test_random_allocations_are_counted_while_alive(simulated: Kit) -> None:
    chance = random.Random(4)
    alive: list[Any] = []
    for _ in range(600):
        step = chance.random()
        try:
            if step < 0.4 or not alive:
                alive.append(simulated.cupy.zeros(chance.randrange(5000), np.float32))
            elif step < 0.55:
                alive.append(chance.choice(alive)[chance.randrange(3) :])
            elif step < 0.65:
                alive.append(simulated.cupy.from_dlpack(chance.choice(alive)))
            elif step < 0.75:
                alive.append(chance.choice(alive) + 1)
            else:
                del alive[chance.randrange(len(alive))]
        except OutOfMemoryError:
            del alive[: len(alive) // 2]
        blocks = {id(x._memory): x._memory.size for x in alive}
        assert simulated.used() == sum(blocks.values())
    alive.clear()
    assert simulated.used() == 0


def test_current_gpu_is_a_threads_own(two: Kit) -> None:
    seen: list[int] = []
    with two.cupy.cuda.Device(1):
        thread = threading.Thread(target=lambda: seen.append(two.cupy.cuda.runtime.getDevice()))
        thread.start()
        thread.join()
        assert two.cupy.cuda.runtime.getDevice() == 1
        with two.cupy.cuda.Device(0):
            assert two.cupy.cuda.Device().id == 0
        assert two.cupy.cuda.runtime.getDevice() == 1
    assert (seen, two.cupy.cuda.runtime.getDevice()) == ([0], 0)


def test_fewer_gpus_leave_arrays_usable(simulated: Kit) -> None:
    x = simulated.array([1, 2], index=1)
    bls.simulate_gpus(1, CAPACITY, even_with_cuda=True)
    assert x.get().tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        simulated.cupy.cuda.Device(1)


def test_a_smaller_capacity_keeps_what_is_there(simulated: Kit) -> None:
    x = simulated.cupy.zeros(1000, np.uint8)
    bls.simulate_gpus(2, 500, even_with_cuda=True)
    assert simulated.used() == 1000
    with pytest.raises(OutOfMemoryError):
        simulated.cupy.zeros(1, np.uint8)
    del x
    simulated.cupy.zeros(500, np.uint8)


def test_the_pool_and_mem_info(gpu: Kit) -> None:
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        gpu.cupy.cuda.Device(63).use()
    pool = gpu.cupy.get_default_memory_pool()
    x = gpu.cupy.zeros(1 << 20, np.uint8)
    assert pool.total_bytes() >= pool.used_bytes() >= x.nbytes
    free, total = gpu.cupy.cuda.Device(0).mem_info
    assert 0 < free < total
    pool.free_all_blocks()
    assert gpu.cupy.cuda.runtime.memGetInfo()[1] == total
    usage = gpus().usage(0)  # type: ignore[union-attr]
    assert (usage.ours, usage.total) == (pool.used_bytes(), total)
    assert min(usage.ours, usage.cached, usage.others) >= 0
