"""Send requests under a load: by clients that wait for each response, or at scheduled times whatever the responses.

Guarantees: an open-loop latency counts from the scheduled arrival, so a slow response delays no measurement
(no coordinated omission). A failed request is counted by its message, and its time with no other. The functions return
when every request has ended. Times are the event loop's, in seconds.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from bls_notebook.records import duration

from .records import LEAST, Percentiles

Send = Callable[[], Awaitable[str]]
"""Sends one request; returns the error, or an empty text."""
Sleep = Callable[[float], Awaitable[object]]

MOST = 2_000  # unanswered requests; more would measure memory
_LATE, _TIMER = 0.1, 0.0005  # fraction of the latency that a late load generator may be; s that its clock may miss
_QUEUE, _GROWTH = 10, 2.0  # unanswered requests, and growth of the latency, that mean a queue without end


@dataclass
class Load:
    """The outcome of a load."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    late: list[float] = field(default_factory=list)  # delays of the sends after the scheduled arrivals
    waiting: int = 0  # requests that were unanswered when the last one was sent
    unanswered: int = 0
    cut: bool = False  # whether `MOST` requests were unanswered, so that the last ones were not sent

    def add(self, seconds: float, error: str) -> None:
        if error:
            self.failed[error] += 1
        else:
            self.latencies.append(seconds)

    @property
    def lateness(self) -> float:
        """The mean delay with which the requests were sent."""
        return sum(self.late) / max(1, len(self.late))

    @property
    def problem(self) -> str:
        """Why the figures mean nothing; empty if they do."""
        if self.lateness > max(_TIMER, _LATE * sum(self.latencies) / max(1, len(self.latencies))):
            return f"the load generator could not keep up: it sent requests {duration(self.lateness)} late on average"
        third = len(self.latencies) // 3 if self.waiting >= _QUEUE else 0
        grows = third and median(self.latencies[-third:]) > _GROWTH * median(self.latencies[:third])
        if self.unanswered or self.cut or grows:
            return f"overloaded: {len(self.latencies) / self.seconds:.3g} per s were answered, and the queue grew"
        return ""


def percentiles(latencies: Sequence[float]) -> Percentiles:
    """Return the percentiles of latencies (the nearest rank: one that a request had)."""
    ordered, count = sorted(latencies), len(latencies)
    parts = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    known = {name: ordered[-1 - int(count * (1 - part))] for name, part in parts.items() if count >= LEAST[name]}
    return Percentiles(count, **known)


def arrivals(rate: float, seconds: float) -> list[float]:
    """Return the times of independent arrivals: a Poisson process with exactly the mean rate, always the same one."""
    source = random.Random(f"{rate} {seconds}")
    return sorted(source.uniform(0, seconds) for _ in range(max(1, round(rate * seconds))))


async def closed_loop(send: Send, concurrency: int, seconds: float) -> Load:
    """Let clients send one request after the other for a time; each waits for its response."""
    loop, load = asyncio.get_running_loop(), Load()
    began = loop.time()

    async def client() -> None:
        now = began
        while now < began + seconds:  # at least one request, however busy the machine is
            sent = loop.time()
            error = await send()
            now = loop.time()
            load.add(now - sent, error)
            if error:  # a refused request does not wait
                await asyncio.sleep(0)

    await asyncio.gather(*(client() for _ in range(concurrency)))
    load.seconds = loop.time() - began
    return load


async def open_loop(send: Send, rate: float, seconds: float, stop: Callable[[], object], sleep: Sleep) -> Load:
    """Send requests at random times; then wait as long for the responses, and `stop` the unanswered requests."""
    loop, load = asyncio.get_running_loop(), Load()
    began, ended = loop.time(), False
    running: set[asyncio.Task[None]] = set()

    async def request(due: float) -> None:
        load.late.append(loop.time() - due)
        error = await send()
        if ended:
            load.unanswered += 1
        else:
            load.add(loop.time() - due, error)

    for due in arrivals(rate, seconds):
        pause = began + due - loop.time()
        await (sleep(pause) if pause > 0 else asyncio.sleep(0))
        if len(running) >= MOST:
            load.cut = True
            break
        task = loop.create_task(request(began + due))
        running.add(task)
        task.add_done_callback(running.discard)
    load.waiting = len(running)
    if running:
        await asyncio.wait(running, timeout=max(1.0, seconds))
    load.seconds = max(seconds, loop.time() - began)
    if running:
        ended = True
        stop()
        await asyncio.gather(*running)
    return load
