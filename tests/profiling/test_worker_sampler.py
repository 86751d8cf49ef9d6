"""The sampler of a worker finds threads of one process that take turns with its GIL."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bls_notebook.profiling import worker_sampler
from bls_notebook.profiling.worker_sampler import GilTurns
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
        until(lambda: turns.wait(threading.Event()) or turns.ns > 0, "no turns were found")


@pytest.mark.parametrize(
    ("threads", "late", "expected"),
    [({"a": 1.0, "b": 1.0}, True, 2), ({"a": 1.0, "b": 0.01}, True, 0), ({"a": 1.0, "b": 1.0}, False, 0)],
)
def test_only_threads_that_compute_while_the_sampler_waits_take_turns(
    monkeypatch: pytest.MonkeyPatch, threads: dict[str, float], late: bool, expected: int
) -> None:
    second = 1_000_000_000
    times = dict.fromkeys(threads, 0)
    now = 0
    monkeypatch.setattr(worker_sampler, "_worked", lambda: {name: 1 + ns for name, ns in times.items()})
    monkeypatch.setattr(worker_sampler, "perf_counter_ns", lambda: now)
    turns = GilTurns()
    for _ in range(3):  # the first sample only begins an interval
        now += second
        for name, share in threads.items():
            times[name] += round(share * second)
        turns.note(second if late else 0, second)
    assert turns.ns == expected * second
