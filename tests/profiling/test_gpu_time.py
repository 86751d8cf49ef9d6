from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.profiling.gpu_time import DeviceTime, device_timer
from tests.engine.harness import infer
from tests.engine.sources import ASYNC_DOUBLE, DOUBLE, pbtxt


class Cuda:
    """A GPU whose clock moves on by one millisecond with each event."""

    def __init__(self) -> None:
        self.now = 0
        self.current = 0
        self.log: list[str] = []
        self.broken = False
        self.runtime = SimpleNamespace(getDeviceCount=lambda: 1)
        cuda = self

        class Event:
            def record(self, stream: str) -> None:
                if cuda.broken:
                    raise RuntimeError("the GPU has fallen off the bus")
                cuda.now += 1
                self.at = cuda.now
                cuda.log.append(f"{stream} on {cuda.current}")

            def synchronize(self) -> None:
                cuda.log.append("waited")

        class Device:
            def __init__(self, index: int) -> None:
                self.index = index

            def __enter__(self) -> None:
                self.before, cuda.current = cuda.current, self.index

            def __exit__(self, *_: Any) -> None:
                cuda.current = self.before

        self.Event, self.Device = Event, Device

    def get_current_stream(self) -> str:
        return "stream"

    def get_elapsed_time(self, begin: Any, end: Any) -> float:
        return float(end.at - begin.at)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    found = Cuda()
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=found))
    return found


def test_without_cupy_or_a_gpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    assert device_timer() is None

    def no_driver() -> int:
        raise RuntimeError("cudaErrorInsufficientDriver")

    broken = SimpleNamespace(cuda=SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=no_driver)))
    monkeypatch.setitem(sys.modules, "cupy", broken)
    assert device_timer() is None


def test_events_are_put_into_the_stream_of_the_instances_gpu(cuda: Cuda) -> None:
    begin = device_timer()
    assert begin is not None
    time = begin(2)
    assert isinstance(time, DeviceTime)
    assert time.ns() == -1  # not over yet
    time.end()
    time.end()
    assert cuda.log == ["stream on 2", "stream on 2"]
    assert cuda.current == 0
    assert time.ns() == 1_000_000


def test_a_gpu_that_fails_is_not_measured_and_fails_nothing(cuda: Cuda) -> None:
    begin = device_timer()
    assert begin is not None
    time = begin(0)
    assert time is not None
    cuda.broken = True
    time.end()
    assert time.ns() == -1
    assert begin(0) is None


@pytest.mark.parametrize("source", [DOUBLE, ASYNC_DOUBLE], ids=["sync", "async"])
def test_requests_on_a_gpu_have_its_time(repo: bls.ModelRepository, cuda: Cuda, source: str) -> None:
    repo.define("d", source, pbtxt())
    found = repo._server.find("d")
    assert found is not None
    found.instances[0].gpu = 1  # as if its instance group were of KIND_GPU
    found.instances[0].device = "gpu:1"
    found.be(found.seen)
    with bls.profile() as profile:
        infer(repo, "d")
    (span,) = profile.record.spans
    assert (span.device, span.device_ns) == ("gpu:1", 1_000_000)
    assert cuda.log == ["stream on 1", "stream on 1", "waited"]
    (model_figures,) = profile.statistics().models
    assert model_figures.device_ns == 1_000_000


@pytest.fixture
def simulated() -> Iterator[None]:
    bls.simulate_gpus(1)
    yield
    bls.simulate_gpus(0)


def test_a_simulated_gpu_is_shown_and_not_measured_and_crossings_count(
    repo: bls.ModelRepository, simulated: None
) -> None:
    repo.define("g", DOUBLE, pbtxt().replace("KIND_CPU", "KIND_GPU"))
    with bls.profile() as profile:
        infer(repo, "g")
    assert [(s.device, s.device_ns) for s in profile.record.spans] == [("gpu:0 (simulated)", -1)]
    repo.define("d", DOUBLE, pbtxt())
    with bls.profile() as profile:
        infer(repo, "d")
        assert repo.infer("d", {"X": [4]}, preferred_memory="gpu:0").error is None
        assert repo.infer("d", {"X": bls.cupy().asarray([4], "int32")}).error is None
    assert [s.crossings for s in profile.record.spans] == [0, 1, 1]
