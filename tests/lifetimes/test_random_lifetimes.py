from __future__ import annotations

import _tracemalloc
import gc
import random
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.devices.registry import gpus
from bls_notebook.engine import batch_runner
from bls_notebook.lifetimes import allocation_table as book
from tests.engine.harness import until
from tests.lifetimes import memory_models as models

WALKS, CALLS = 2, 400  # in small pieces, so that a busy machine is not taken for one that hangs
NUMPY = np.lib.tracemalloc_domain


def numpy_bytes() -> int:
    """Bytes of NumPy arrays that are alive, as NumPy itself reports them."""
    return sum(trace[1] for trace in _tracemalloc._get_traces() if trace[0] == NUMPY)


class Machine:
    """What the GPUs' own pools say is in use, and NumPy, whose memory the simulated ones use too."""

    def __init__(self) -> None:
        found = gpus()
        assert found is not None
        self._gpus = found
        self.indices = range(found.count)
        self._before = [found.usage(i).ours for i in self.indices]

    def used(self, index: int) -> int:
        return self._gpus.usage(index).ours - self._before[index]

    def host(self) -> int:
        simulated = sum(self.used(i) for i in self.indices) if self._gpus.simulated else 0
        return numpy_bytes() - simulated


class Walk:
    """Random calls, whose answers are held in random ways for a while."""

    def __init__(self, repo: bls.ModelRepository, seed: int) -> None:
        self.repo = repo
        self.random = random.Random(seed)
        found = gpus()
        assert found is not None
        self.gpus = range(found.count)
        self.held: list[Any] = []

    def array(self) -> Any:
        size = self.random.choice((1, 3, 40, 500, 700, 5_000, 40_000))
        where = self.random.choice(("cpu", "cpu", "view", "gpu"))
        if where == "gpu":
            cupy = bls.cupy()
            with cupy.cuda.Device(self.random.choice(self.gpus)):
                return cupy.ones(size, np.float32)
        if where == "view":
            return np.ones(size + 10, np.float32)[5:-5]
        return np.ones(size, np.float32)

    def request(self, op: int, array: Any) -> dict[str, Any]:
        return {"OP": np.array([op], np.int32), "X": array}

    def step(self) -> None:
        choice = self.random.random()
        if choice < 0.15:
            self.let_go()
        elif choice < 0.80:
            place = self.random.choice((None, None, "cpu", *(f"gpu:{i}" for i in self.gpus)))
            self.call("worker", self.random.choice(range(models.NEST_ASYNC)), preferred_memory=place)
        elif choice < 0.90:
            self.stream()
        else:
            self.call("gatherer", self.random.randint(0, 2))
        while len(self.held) > 40:
            self.let_go()

    def call(self, model: str, op: int, **options: Any) -> None:
        array = self.array()
        response = self.repo.infer(model, self.request(op, array), **options)
        assert response.error is None, response.error.message()
        self.hold(response)
        if self.random.random() < 0.2:
            self.held.append(array)

    def hold(self, response: Any) -> None:
        """Keep some of what an answer consists of."""
        tensor = response["Y"]
        how = self.random.choice(("nothing", "response", "tensor", "array", "view", "capsule", "closure"))
        if how == "response":
            self.held.append([response])
        elif how == "tensor":
            self.held.append({"tensor": tensor})
        elif how == "array":
            self.held.append(tensor._array)
        elif how == "view":
            self.held.append(tensor._array[: max(1, len(tensor._array) // 2)])
        elif how == "capsule":
            module = np if tensor.is_cpu() else bls.cupy()
            self.held.append(module.from_dlpack(tensor))
        elif how == "closure":
            self.held.append(lambda: tensor)

    def stream(self) -> None:
        responses = self.repo.stream("streamer", self.request(self.random.randint(0, 3), self.array()))
        if self.random.random() < 0.3:
            next(responses)
            self.held.append(responses)  # the rest is not read
            return
        for response in responses:
            assert response.error is None
            if "Y" in response:  # not the final flag alone
                self.hold(response)

    def let_go(self) -> None:
        if self.held:
            del self.held[self.random.randrange(len(self.held))]

    def finish(self) -> None:
        self.held.clear()
        for name in ("worker", "other"):
            self.repo.infer(name, self.request(models.FORGET, np.ones(1, np.float32)))
        gc.collect()


def walk(machine: Any, walker: Walk, calls: int, limit: int = 2_000) -> bls.Lifetimes:
    """Check every step; the log is read in between in steps of all sizes."""
    with bls.track_memory(limit=limit) as lifetimes:

        def counted() -> dict[str, tuple[int, int]]:
            """Bytes of each device, as the machine and the ledger report them."""
            found = {"cpu": (machine.host(), lifetimes.bytes("cpu"))}
            return found | {f"gpu:{i}": (machine.used(i), lifetimes.bytes(f"gpu:{i}")) for i in machine.indices}

        def agree(when: str) -> None:
            def agrees() -> bool:
                return all(truth == told for truth, told in counted().values())

            if not agrees():  # a thread may be letting go of what it served
                try:
                    until(agrees)
                except AssertionError:
                    raise AssertionError(f"{when}: {counted()}") from None

        for number in range(calls):
            walker.step()
            agree(f"step {number}")
        walker.finish()
        until(lambda: lifetimes.bytes() == 0, "nothing is left at the end")
        agree("at the end")
    return lifetimes.record


@pytest.fixture(params=["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def repo(request: pytest.FixtureRequest) -> Iterator[bls.ModelRepository]:
    if request.param == "simulated":
        bls.simulate_gpus(2, even_with_cuda=True)
    with bls.ModelRepository() as repo:
        models.load_all(repo)
        yield repo
    bls.simulate_gpus(0)


@pytest.mark.extra
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(WALKS))
def test_random_requests_keep_true_lifetimes(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # The fewer objects there are, the quicker NumPy's figure is there.
    monkeypatch.setattr(book, "MOST_REQUESTS", 100)
    monkeypatch.setattr(batch_runner, "FOLD_AT", 4)
    walker = Walk(repo, seed)
    with bls.track_memory(limit=100):  # what is made and imported once
        for _ in range(100):
            walker.step()
        walker.finish()
    tracemalloc.start(1)  # from here on: the fewer objects it knows, the quicker it tells of them
    try:
        record = walk(Machine(), walker, CALLS, limit=100)
    finally:
        tracemalloc.stop()
    assert not record.alive()
    assert record.dropped_bytes == 0
    assert len(record.lives) == 100
    assert record.dropped > CALLS
