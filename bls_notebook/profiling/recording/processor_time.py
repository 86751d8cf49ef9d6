"""Processor time of a run, and how much of it held Python's lock (the GIL).

Guarantees: only `sample_clocks` changes anything: it raises the interpreter's switch interval while it runs,
and restores it in any case.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from bls_notebook.profiling.records.verdicts import ClockSample

_SWITCH = 0.015  # seconds that a thread which wants the lock waits before it asks for it
_SLEEP = 0.001
_SLEEP_NS = round(1e9 * _SLEEP)
_LATE_NS = round(1e9 * (_SLEEP + 0.7 * _SWITCH))
_HELD = 1_000_000  # ns: later than asked, of one model's work: less is what waking up takes
_SAMPLES = 12
_LONGEST = 0.5

_TICK = 10_000_000  # ns that the system counts processor time in, for whoever asks
_STAT = Path("/proc/stat")
_TASKS = Path("/proc/self/task")
_OWN = Path("/proc/thread-self/schedstat")


def cores() -> int:
    """Return how many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


class Processors:
    """What this process gets of the processors from when this is made; times in ns."""

    def __init__(self) -> None:
        self._waited = _waited()
        self._used = time.process_time_ns()

    def used(self) -> int:
        """Return how much processor time it has had."""
        return time.process_time_ns() - self._used

    def waited(self) -> int:
        """Return how long its threads were kept from working because somebody else had the processors.

        That is another program, or another of its threads. Known on Linux alone, of threads that live on; 0
        elsewhere.
        """
        return sum(max(0, ns - self._waited.get(task, 0)) for task, ns in _waited().items())


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
    """Return how long each processor that this process may use was idle, ns; none where not known."""
    try:
        mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        lines = [line.split() for line in _STAT.read_text().splitlines()]
        return {line[0]: (int(line[4]) + int(line[5])) * _TICK for line in lines if line[0] in mine}
    except (AttributeError, OSError, ValueError, IndexError):
        return {}


def _waited() -> dict[str, int]:
    """Return how long each thread has waited for a processor, ns; none where the system does not say."""
    try:
        tasks = list(_TASKS.iterdir())
    except OSError:
        return {}
    waited = {}
    for task in tasks:
        # A thread may have ended meanwhile.
        with contextlib.suppress(OSError, ValueError, IndexError):
            waited[task.name] = int((task / "schedstat").read_text().split()[1])
    return waited


def gil_share_of(samples: Sequence[ClockSample]) -> float:
    """Return the part of the sampled time in which Python's lock was held, 0 to 1; -1 for too few samples.

    A thread that computes in Python gives the lock up only when asked, after the switch interval: whoever
    wakes up meanwhile gets it late. A sample that is late because other programs had the processors counts
    nothing.
    """
    if len(samples) < 3:
        return -1.0
    return sum(s.took for s in samples if s.took > _LATE_NS) / sum(s.took for s in samples)


def sample_clocks(run: Callable[[], object]) -> list[ClockSample]:
    """Sample the clocks in a thread that wakes up periodically while `run` is called.

    `run` is called again until there are samples enough, or half a second has gone.
    """
    samples: list[ClockSample] = []
    stop = threading.Event()

    def look() -> None:
        with contextlib.ExitStack() as stack:
            own = -1
            with contextlib.suppress(OSError):
                own = stack.enter_context(_OWN.open("rb")).fileno()
            now, used, waited = time.perf_counter_ns(), _others_time(), _has_waited(own)
            while not stop.is_set():
                time.sleep(_SLEEP)
                # The clock and the wait of the same moment, as asking may itself have to wait for the lock.
                before, had_used, had_waited = now, used, waited
                now, used, waited = time.perf_counter_ns(), _others_time(), _has_waited(own)
                took = now - before - (waited - had_waited)
                samples.append(ClockSample(before, now, used - had_used, took, took > _SLEEP_NS + _HELD))

    thread = threading.Thread(target=look, name="bls-lock-probe", daemon=True)
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    try:
        thread.start()
        begun = time.perf_counter()
        while True:
            run()
            if len(samples) >= _SAMPLES or time.perf_counter() - begun > _LONGEST:
                break
        return samples[:]
    finally:
        stop.set()
        sys.setswitchinterval(before)
        thread.join()


def _others_time() -> int:
    """Return the processor time of the other threads of this process, ns."""
    return time.process_time_ns() - time.thread_time_ns()


def _has_waited(schedstat: int) -> int:
    """How long the thread of an open file has waited for processors, ns; 0 where there is none."""
    return 0 if schedstat < 0 else int(os.pread(schedstat, 80, 0).split()[1])
