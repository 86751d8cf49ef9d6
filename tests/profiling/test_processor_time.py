from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from bls_notebook.profiling import gil, processor_time
from bls_notebook.profiling.gil import gil_share_of
from bls_notebook.profiling.processor_time import OtherPrograms, ProcessorUse, cores, parallel_throughput


def probes() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "probe" in thread.name]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_the_switch_interval_is_put_back_and_the_probe_ends(error: type[BaseException]) -> None:
    before = sys.getswitchinterval()
    within: list[float] = []

    def run() -> None:
        within.append(sys.getswitchinterval())
        raise error

    with pytest.raises(error):
        gil_share_of(run)
    assert sys.getswitchinterval() == before
    assert within[0] > before
    assert not probes()


@pytest.mark.parametrize(("late", "waited", "share"), [(20, 0, 1.0), (1, 0, 0.0), (20, 15, 0.0), (40, 20, 1.0)])
def test_who_gets_the_lock_late_without_a_wait_for_a_processor_waited_for_the_lock(
    monkeypatch: pytest.MonkeyPatch, late: int, waited: int, share: float
) -> None:
    times, waits = itertools.count(0, late * 1_000_000), itertools.count(0, waited * 1_000_000)
    clock = SimpleNamespace(perf_counter_ns=lambda: next(times), perf_counter=lambda: 0.0)  # until there are samples
    monkeypatch.setattr(gil, "time", clock)
    monkeypatch.setattr(gil, "_schedstat", lambda file: (0, next(waits)))
    assert gil_share_of(lambda: time.sleep(0.001)) == share


def test_a_run_without_samples_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gil, "_SAMPLES", 0)
    monkeypatch.setattr(gil, "_SLEEP", 60.0)
    assert gil_share_of(lambda: None) == -1.0


def test_times_and_rates() -> None:
    processors = ProcessorUse()
    assert parallel_throughput(1, 0.001) > 0
    assert parallel_throughput(3, 0.001) > 0
    assert parallel_throughput(1, 1e-9) > 0  # where a thread gets its processor too late
    assert processors.used() > 0
    assert processors.waited() >= 0
    assert cores() >= 1
    assert not probes()


def test_a_system_that_does_not_say_who_waited_or_what_others_have(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(processor_time, "_TASKS", tmp_path / "none")
    assert ProcessorUse().waited() == 0
    monkeypatch.setattr(processor_time, "_STAT", tmp_path / "none")
    assert OtherPrograms().share() == 0.0
    monkeypatch.setattr(gil, "_OWN", tmp_path / "none")
    assert 0 <= gil_share_of(lambda: time.sleep(0.001)) <= 1


class Machine:
    """Processors whose times are set by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path, processors: int) -> None:
        self.file, self.now, self.used = path, 0, 0
        self.idle = [0] * processors
        monkeypatch.setattr(processor_time, "_STAT", path)
        monkeypatch.setattr(processor_time.os, "sched_getaffinity", lambda _: set(range(processors)))
        monkeypatch.setattr(processor_time.time, "perf_counter_ns", lambda: self.now)
        monkeypatch.setattr(processor_time.time, "process_time_ns", lambda: self.used)
        self.passes()

    def passes(self, ms: int = 0, used: int = 0, idle: tuple[int, ...] = ()) -> None:
        """Let time pass; `used` is this process's processor time, `idle` each processor's."""
        self.now += ms * 1_000_000
        self.used += used * 1_000_000
        self.idle = [a + b for a, b in zip(self.idle, idle or [0] * len(self.idle), strict=True)]
        lines = [f"cpu{n} 1 2 3 {ms // 10} 0 0 0 0 0 0" for n, ms in enumerate(self.idle)]
        self.file.write_text("\n".join(["cpu  9 9 9 9 9 9 9 9 9 9", *lines, "cpu77 0 0 0 0 0", "intr 5"]))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux says")
def test_what_others_have_of_the_processors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = Machine(monkeypatch, tmp_path / "stat", 2)
    machine.passes(700, 300, (650, 20))
    for used, idle, share in (
        (2000, (0, 0), 0.0),  # all of it is this process's own, however many threads waited
        (1000, (500, 500), 0.0), (500, (0, 0), 0.74), (0, (1000, 1000), 0.0),
        (1000, (0, 990), 0.0),  # less than can be told
        (0, (0, 1000), 0.49),
    ):  # fmt: skip
        others = OtherPrograms()
        machine.passes(1000, used, idle)
        assert others.share() == pytest.approx(share)
