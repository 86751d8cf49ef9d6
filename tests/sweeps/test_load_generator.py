"""Loads in the virtual time of an event loop: nothing here depends on the machine's speed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from bls_notebook.sweeps.load_generator import Load, arrivals, closed_loop, open_loop, percentiles


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        select = self._selector.select  # type: ignore[attr-defined]

        def jump(timeout: float | None = None) -> Any:
            self.now += timeout or 0.0
            return select(0)

        self._selector.select = jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self.now


def run(coroutine: Coroutine[Any, Any, Load]) -> Load:
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


def server(seconds: float, instances: int = 1) -> Callable[[], Awaitable[str]]:
    """Return a send function to a server with a queue."""
    free: list[asyncio.Semaphore] = []

    async def send() -> str:
        free[:] = free or [asyncio.Semaphore(instances)]
        async with free[0]:
            await asyncio.sleep(seconds)
        return ""

    return send


def nothing() -> None:
    raise AssertionError("no request is left")


def test_clients_wait_for_their_responses() -> None:
    load = run(closed_loop(server(0.1, instances=2), 4, 2.0))
    assert len(load.latencies) == 42  # 20 per s, and the two last ones of the queue
    assert percentiles(load.latencies).p95 == pytest.approx(0.2)
    assert not load.problem


def test_a_latency_counts_from_the_scheduled_arrival_without_coordinated_omission() -> None:
    number = itertools.count()

    async def stalls_once() -> str:
        await asyncio.sleep(2.0 if next(number) == 30 else 0.001)
        return ""

    gate = asyncio.Lock()

    async def one_at_a_time() -> str:
        async with gate:
            return await stalls_once()

    load = run(open_loop(one_at_a_time, 20, 5.0, nothing, asyncio.sleep))
    slow = [latency for latency in load.latencies if latency > 0.1]
    assert 30 < len(slow) < 50  # all that arrived during the stall, not only the request that stalled
    assert len(load.latencies) == 100


def test_arrivals_are_random_with_exactly_the_mean_rate_and_the_same_each_time() -> None:
    times = arrivals(50, 4)
    assert len(times) == 200
    assert times == arrivals(50, 4) == sorted(times)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert max(gaps) > 4 / 50  # a Poisson process has long gaps
    assert len({round(gap, 6) for gap in gaps}) > 150


def test_failed_requests_are_named_and_their_times_count_nowhere() -> None:
    number = itertools.count()

    async def send() -> str:
        failing = next(number) % 2
        await asyncio.sleep(0.001 if failing else 0.1)
        return "out of memory" if failing else ""

    for load in (run(closed_loop(send, 1, 2.0)), run(open_loop(send, 10, 5.0, nothing, asyncio.sleep))):
        assert load.failed["out of memory"] > 9
        assert min(load.latencies) >= 0.099


def test_an_overloaded_server_gives_no_latency_and_its_requests_are_stopped() -> None:
    stopped = asyncio.Event()

    async def send() -> str:
        waits = [asyncio.ensure_future(slow()), asyncio.ensure_future(stopped.wait())]
        await asyncio.wait(waits, return_when="FIRST_COMPLETED")
        for wait in waits:
            wait.cancel()
        return "cancelled" if stopped.is_set() else ""

    slow = server(0.1)
    load = run(open_loop(send, 100, 3.0, stopped.set, asyncio.sleep))
    assert "overloaded: " in load.problem
    assert not load.failed  # those that were stopped did not fail
    assert load.unanswered + len(load.latencies) == 300
    assert not run(open_loop(server(0.1), 5, 3.0, nothing, asyncio.sleep)).problem


def test_a_load_generator_that_sends_late_says_so() -> None:
    async def sleepy(seconds: float) -> None:
        await asyncio.sleep(seconds + 0.05)

    load = run(open_loop(server(0.1, instances=99), 10, 5.0, nothing, sleepy))
    assert load.problem.startswith("the load generator could not keep up: it sent requests 41.1 ms")


def test_percentiles_need_enough_responses() -> None:
    assert percentiles([]).p50 == 0
    few = percentiles([0.1] * 18 + [0.5])
    assert (few.count, few.p50, few.p95, few.p99) == (19, 0.1, 0, 0)
    many = percentiles([number / 100 for number in range(100, 0, -1)])
    assert (many.p50, many.p95, many.p99) == (0.5, 0.95, 0.99)
