"""The samplers of a worker and of the kernel find threads of one process that take turns with its GIL."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

from bls_notebook.profiling import gil_turns
from bls_notebook.profiling.gil_turns import GilTurns
from tests.engine.harness import until

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux reports the times of threads"),
    pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="no GIL"),
]


@contextmanager
def computing(threads: int) -> Iterator[None]:
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            sum(range(1000))

    running = [threading.Thread(target=compute) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in running:
            thread.join()


def test_threads_that_compute_take_turns_with_the_gil() -> None:
    turns = GilTurns()
    with computing(2):
        samples = turns.samples(threading.Event(), 0.005)
        until(lambda: next(samples) is not None or turns.ns() > 0, "no turns were found")


@pytest.mark.parametrize(
    ("shares", "late", "seconds", "threads"),
    [((1.0, 1.0), True, 3, (1, 2)), ((1.0, 0.01), True, 0, (1,)), ((1.0, 1.0), False, 0, ())],
)
def test_only_threads_that_compute_while_the_sampler_waits_take_turns(
    monkeypatch: pytest.MonkeyPatch, shares: tuple[float, float], late: bool, seconds: int, threads: tuple[int, ...]
) -> None:
    second = 1_000_000_000
    times = {1: 0, 2: 0}
    monkeypatch.setattr(gil_turns, "_worked", lambda: dict(times))
    turns = GilTurns()
    for now in (11, 12, 13):
        for thread, share in enumerate(shares, 1):
            times[thread] += round(share * second)
        turns.note(now * second, second if late else 0, second, 2 * second)
    assert turns.ns() == seconds * second
    assert turns.intervals == [(10 * second, 13 * second, threads, round(2.5 * second))] * late


def test_a_late_sample_stands_for_the_time_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gil_turns, "_worked", dict)
    turns, ms = GilTurns(), 1_000_000
    for now in range(4, 80, 4):  # a thread holds the GIL for a quarter of the time
        turns.note(now * ms, ms if now % 16 == 4 else 0, ms, 4 * ms)
    assert turns.late == [(begin * ms, (begin + 4) * ms) for begin in range(0, 80, 16)]
    assert sum(end - begin for begin, end, *_ in turns.intervals) == 5 * ms


def test_a_thread_beside_the_others_takes_no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {1: 0, threading.get_ident(): 0}
    monkeypatch.setattr(gil_turns, "_worked", lambda: dict(times))
    turns = GilTurns(beside=threading.current_thread())
    for now in (2, 3):
        turns.note(now * 1_000_000_000, 1_000_000_000, 1_000_000_000, 1_000_000_000)
        times.update(dict.fromkeys(times, now * 1_000_000_000))
    turns.note(4_000_000_000, 1_000_000_000, 1_000_000_000, 1_000_000_000)
    assert [threads for _, _, threads, _ in turns.intervals] == [(1,)]


@pytest.mark.parametrize(("waited", "worked", "found"), [(0, 0, True), (60, 0, False), (0, 60, False)])
def test_the_last_wait_counts_without_the_samplers_own_work_and_its_waits_for_a_processor(
    monkeypatch: pytest.MonkeyPatch, waited: int, worked: int, found: bool
) -> None:
    ms = 1_000_000
    times = {"now": 0, "waited": 0, "worked": 0}

    class Over:
        def wait(self, seconds: float) -> bool:
            times["now"] += round(seconds * 1e9) + 60 * ms  # other threads have the GIL until the end
            times["waited"] += waited * ms
            times["worked"] += worked * ms
            return True

    monkeypatch.setattr(gil_turns, "perf_counter_ns", lambda: times["now"])
    monkeypatch.setattr(gil_turns, "process_time_ns", lambda: times["now"])
    monkeypatch.setattr(gil_turns, "thread_time_ns", lambda: times["worked"])
    monkeypatch.setattr(gil_turns, "own_wait", lambda: nullcontext(lambda: times["waited"]))
    turns = GilTurns()
    assert list(turns.samples(Over(), 0.003)) == []
    assert [end - begin for begin, end, *_ in turns.intervals] == [60 * ms] * found
