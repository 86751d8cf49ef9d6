from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.extending import host_of
from bls_notebook.profiling import gil, gil_turns, resource_time
from bls_notebook.profiling.gil import gil_share_of, held_share
from bls_notebook.profiling.resource_time import (
    DeviceTime,
    OtherPrograms,
    ProcessorUse,
    ThreadTimes,
    cores,
    device_timer,
    parallel_throughput,
)
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
    found = host_of(repo).find("d")
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


def probes() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "probe" in thread.name]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_the_switch_interval_is_put_back_and_the_probe_ends(error: type[BaseException]) -> None:
    before, others = sys.getswitchinterval(), probes()  # the probe of an earlier profile may still be ending
    within: list[float] = []

    def run() -> None:
        within.append(sys.getswitchinterval())
        raise error

    with pytest.raises(error):
        gil_share_of(run)
    assert sys.getswitchinterval() == before
    assert within[0] > before
    assert set(probes()) <= set(others)


@pytest.mark.parametrize(("late", "waited", "share"), [(20, 0, 1.0), (1, 0, 0.0), (20, 19, 0.0), (40, 20, 1.0)])
def test_gil_waits_are_late_wakeups_without_a_wait_for_a_processor(
    monkeypatch: pytest.MonkeyPatch, late: int, waited: int, share: float
) -> None:
    def clock(each: int, idle: int) -> Iterator[int]:
        return itertools.accumulate(itertools.chain([0], [idle] * gil._IDLE, itertools.repeat(each * 1_000_000)))

    times, waits = clock(late, 1_100_000), clock(waited, 0)
    monkeypatch.setattr(gil, "_SLEEPS", (0.001, 0.001))
    real = time.perf_counter
    monkeypatch.setattr(gil, "time", SimpleNamespace(perf_counter_ns=lambda: next(times), perf_counter=real))
    monkeypatch.setattr(gil, "own_wait", lambda: nullcontext(lambda: next(waits)))
    monkeypatch.setattr(gil.OtherPrograms, "share", lambda self: 0.0)
    assert gil_share_of(lambda: time.sleep(0.001)) == share


@pytest.mark.parametrize(
    ("idle", "samples", "others", "share"),
    [
        ([(90, 1000)] * 10, [(300, 1000)] * 3 + [(150, 1000)], 0, 0.75),
        ([(90, 1000)] * 9 + [(5000, 6000)], [(300, 1000)] * 4, 0, 1.0),  # one is late by chance
        ([(250, 1000)] * 10, [(300, 1000)] * 4, 0, 0.0),  # as late as without any work
        ([(90, 1000)] * 10, [(300, 1000)] * 4, 800, 0.8),
        ([(90, 1000)] * 10, [(300, 1000)] * 4, 2000, -1.0),  # another program had the processor for half of the time
        ([(90, 1000)] * 10, [(90, 1000)] * 4, 4000, 0.0),
        ([], [(300, 1000)] * 4, 0, 1.0),
        ([(90, 1000)] * 10, [(300, 1000)] * 2, 0, -1.0),  # too few samples
    ],
)
def test_fraction_of_the_time_in_which_the_gil_was_held(
    idle: list[tuple[int, int]], samples: list[tuple[int, int]], others: int, share: float
) -> None:
    def ns(each: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(late * 1000, whole * 1000) for late, whole in each]

    assert held_share(ns(idle), ns(samples), others * 1000) == share


def test_times_and_rates() -> None:
    processors = ProcessorUse()
    assert parallel_throughput(1, 0.001) > 0
    assert parallel_throughput(3, 0.001) > 0
    assert parallel_throughput(1, 1e-9) > 0  # where a thread gets its processor too late
    assert processors.used() > 0
    assert processors.waited() >= 0
    assert cores() >= 1
    assert not probes()


@pytest.mark.parametrize(
    ("spins", "libraries", "computing"), [(True, 900, (200, 100)), (True, 60, (160, 60)), (False, 900, (1000, 900))]
)
def test_threads_of_a_library_that_spin_computed_only_beside_the_thread_that_called_them(
    monkeypatch: pytest.MonkeyPatch, spins: bool, libraries: int, computing: tuple[int, int]
) -> None:
    mine, clock = threading.get_native_id(), {"process": 0, "library": 0}
    monkeypatch.setattr(resource_time, "cores", lambda: 2)
    monkeypatch.setattr(resource_time, "spins", lambda: spins)
    monkeypatch.setattr(resource_time, "_process_time", lambda pid: clock["process"])
    times = lambda pid=0: {mine: ThreadTimes(0, 0), -1: ThreadTimes(clock["library"], 0)}  # noqa: E731
    monkeypatch.setattr(resource_time, "thread_times", times)
    use = ProcessorUse()
    clock.update(process=100 + libraries, library=libraries)
    assert use.computing() == computing


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the time of another process")
def test_the_processor_time_of_a_worker() -> None:
    code = """import sys, time
for line in sys.stdin:
    end = time.process_time() + float(line)
    while time.process_time() < end:
        pass
    print(flush=True)
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as child:

        def work(seconds: float) -> None:
            child.stdin.write(f"{seconds}\n")
            child.stdout.readline()

        work(0.05)
        use, whole = ProcessorUse(child.pid), ProcessorUse(child.pid, whole=True)
        work(0.05)
        assert 0.05e9 <= use.used() < whole.used() - 0.05e9
        assert use.waited() >= 0
        child.stdin.close()
    assert use.used() == use.waited() == 0  # it has ended


def test_a_system_that_does_not_say_who_waited_or_what_others_have(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(resource_time, "_TASKS", str(tmp_path / "none"))
    assert ProcessorUse().waited() == 0
    monkeypatch.setattr(resource_time, "_STAT", tmp_path / "none")
    assert OtherPrograms().share() == 0.0
    monkeypatch.setattr(gil_turns, "_OWN", tmp_path / "none")
    assert 0 <= gil_share_of(lambda: time.sleep(0.001)) <= 1


class Machine:
    """Processors whose times are set by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path, processors: int) -> None:
        self.file, self.now, self.used = path, 0, 0
        self.idle = [0] * processors
        self.load = path.with_name("loadavg")
        monkeypatch.setattr(resource_time, "_STAT", path)
        monkeypatch.setattr(resource_time, "_LOAD", self.load)
        (tasks := path.with_name("tasks")).mkdir()
        monkeypatch.setattr(resource_time, "_TASKS", str(tasks))
        monkeypatch.setattr(resource_time.os, "sched_getaffinity", lambda _: set(range(processors)))
        monkeypatch.setattr(resource_time.time, "perf_counter_ns", lambda: self.now)
        monkeypatch.setattr(resource_time.time, "process_time_ns", lambda: self.used)
        self.passes()

    def passes(self, ms: int = 0, used: int = 0, idle: tuple[int, ...] = ()) -> None:
        """Let time pass; `used` is this process's processor time, `idle` each processor's."""
        self.now += ms * 1_000_000
        self.used += used * 1_000_000
        self.idle = [a + b for a, b in zip(self.idle, idle or [0] * len(self.idle), strict=True)]
        lines = [f"cpu{n} 1 2 3 {ms // 10} 0 0 0 0 0 0" for n, ms in enumerate(self.idle)]
        self.file.write_text("\n".join(["cpu  9 9 9 9 9 9 9 9 9 9", *lines, "cpu77 0 0 0 0 0", "intr 5"]))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux says")
def test_processor_share_of_other_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = Machine(monkeypatch, tmp_path / "stat", 2)
    machine.passes(700, 300, (650, 20))
    for used, idle, runnable, share in (
        (2000, (0, 0), (), 0.0),  # all of it is this process's own, however many threads waited
        (1000, (500, 500), (), 0.0), (500, (0, 0), (), 0.74), (0, (1000, 1000), (), 0.0),
        (1000, (0, 990), (), 0.0),  # less than can be told
        (0, (0, 1000), (), 0.49),
        (1000, (0, 980), (2, 2), 0.01),  # another program is seen at the begin and at the end
        (1000, (0, 980), (2, 1), 0.0), (1000, (0, 980), (1, 2), 0.0),
    ):  # fmt: skip
        begin, end = runnable or (1, 1)
        machine.load.write_text(f"0.5 0.5 0.5 {begin}/80 1234")
        others = OtherPrograms()
        machine.passes(1000, used, idle)
        machine.load.write_text(f"0.5 0.5 0.5 {end}/80 1234")
        assert others.share() == pytest.approx(share)
