"""Processors: their number, the time that this and other processes use, and waits for a free one (Linux only)."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

_TICK = 10_000_000  # ns that the system counts processor time in, for whoever asks
_STAT = Path("/proc/stat")
_TASKS = Path("/proc/self/task")


def cores() -> int:
    """Return how many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


class Processors:
    """What this process gets of the processors from when this is made; times in ns."""

    def __init__(self) -> None:
        self._waited = {thread: times.waited for thread, times in thread_times().items()}
        self._used = time.process_time_ns()

    def used(self) -> int:
        """Return how much processor time it has had."""
        return time.process_time_ns() - self._used

    def waited(self) -> int:
        """Return how long its threads were kept from working because somebody else had the processors.

        That is another program, or another of its threads. Known on Linux alone, of threads that live on; 0
        elsewhere.
        """
        return sum(max(0, times.waited - self._waited.get(thread, 0)) for thread, times in thread_times().items())


class Others:
    """What other programs have of the processors that this process may use, from when this is made."""

    def __init__(self) -> None:
        self._idle = _idle()
        self._used, self._began = time.process_time_ns(), time.perf_counter_ns()

    def share(self) -> float:
        """Return which part of the processors' time they had, 0 to 1: no more than is certain.

        Known on Linux alone; 0 elsewhere.
        """
        idle = _idle()
        whole = (time.perf_counter_ns() - self._began) * len(idle)
        if not whole or idle.keys() != self._idle.keys():
            return 0.0
        left = whole - (time.process_time_ns() - self._used)
        # Each processor's idle time may be a tick more than it says.
        left -= sum(idle[name] - self._idle[name] + _TICK for name in idle)
        return min(max(0.0, left / whole), 1.0)


def rate(threads: int, seconds: float) -> float:
    """Return how much several threads get done in a second just now, together, without Python's lock.

    Twice as many threads get less than twice as much done where they share a core, where other programs
    keep the processors busy, or where a container may not use them all.
    """
    values = np.linspace(0.0, 1.0, 1 << 17)
    rates: list[float] = []
    ready = threading.Barrier(threads)

    def work() -> None:
        result = np.empty_like(values)
        ready.wait()
        done, now, begun = 0, 0.0, time.perf_counter()
        while now < seconds:  # once at least, however late this thread gets a processor
            np.arctan(values, out=result)  # arithmetic on arrays, which lets go of the lock
            done += 1
            now = time.perf_counter() - begun
        rates.append(done / now)

    started = [threading.Thread(target=work, name="bls-parallel-probe", daemon=True) for _ in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return sum(rates)


def _idle() -> dict[str, int]:
    """Return the idle time of each processor of this process (ns); empty if unknown."""
    try:
        mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        lines = [line.split() for line in _STAT.read_text().splitlines()]
        return {line[0]: (int(line[4]) + int(line[5])) * _TICK for line in lines if line[0] in mine}
    except (AttributeError, OSError, ValueError, IndexError):
        return {}


class ThreadTimes(NamedTuple):
    """How long a thread ran on a processor and how long it waited for one, ns."""

    worked: int
    waited: int


def thread_times() -> dict[int, ThreadTimes]:
    """Return the times of each thread of this process, by native id; empty if the system does not report them."""
    try:
        tasks = list(_TASKS.iterdir())
    except OSError:
        return {}
    times = {}
    for task in tasks:
        with contextlib.suppress(OSError, ValueError, IndexError):  # the thread has ended since
            worked, waited, *_ = map(int, (task / "schedstat").read_text().split())
            times[int(task.name)] = ThreadTimes(worked, waited)
    return times
