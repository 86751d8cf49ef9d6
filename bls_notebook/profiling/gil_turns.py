"""`GilTurns`: the times in which threads held the GIL, seen by a thread that wakes up periodically.

If that thread gets the GIL late although it did not wait for a processor, and the process computed meanwhile, another
thread held the GIL. A worker runs this module, too; its Python may be 3.8.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager
from random import Random
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LATE = 300_000  # ns: a shorter delay is the timer's, or of threads that release the GIL at once
FIRST, EARLY = 12, 0.25  # the first samples come at a fraction of the pause: cells may take a few milliseconds only
_COMPUTED = 0.1  # fraction of the delay that the process must have computed; else the machine was suspended
_WORKED = 0.02  # fraction of an interval: a thread with less processor time did not hold the GIL
_MOST = 10_000  # intervals kept
_OWN = "/proc/thread-self/schedstat"


class GilTurns:
    """Collects the `intervals` in which the GIL was held: begin, end (ns), the threads that computed, and the processor
    time of the process meanwhile (ns). Of threads that hold it for less than a pause, an interval has only the delay
    of a sample: `late` has all of the time before such samples.

    A thread that only waits `beside` the others is not named.
    """

    def __init__(self, beside: threading.Thread | None = None) -> None:
        self._beside = beside
        has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
        self.measures = has_gil and os.path.exists("/proc/self/task")  # else there are no intervals
        self.intervals: list[tuple[int, int, tuple[int, ...], int]] = []
        self.late: list[tuple[int, int]] = []
        self._taken = 0  # samples
        self._begin = 0  # of the interval in which the last sample was late
        self._before: dict[int, int] = {}  # processor time of each thread at its first sample

    def samples(self, over: threading.Event, pause: float) -> Iterator[None]:
        """Wait for about `pause` (s), note whether that took longer, and yield, until an event."""
        with own_wait() as waits:

            def times() -> tuple[int, int, int]:
                idle = waits()  # first, as it lets go of the GIL
                return perf_counter_ns(), idle + thread_time_ns(), process_time_ns()

            chance, (now, apart, used) = Random(), times()
            while True:
                # At random times, else requests that take as long would meet all samples at the same moment.
                wait = pause * chance.uniform(0.5, 1.5) * (EARLY if self._taken < FIRST else 1)
                ended = over.wait(wait)
                before, (now, apart, used) = (now, apart, used), times()
                # Since the last sample, because all of its calls may wait for the GIL; and of the last one, because
                # other threads may have kept the GIL until the end.
                delay = now - before[0] - (apart - before[1]) - round(1e9 * wait)
                self.note(now, delay, used - before[2], now - before[0])
                if ended:
                    return
                yield

    def note(self, now: int, delay: int, used: int, since: int) -> None:
        """Note a delay of the sample at `now`, and the processor time of the process `since` the one before (ns)."""
        self._taken += 1
        if not self.measures or delay < _LATE or used < _COMPUTED * delay:
            self._begin = 0
            return
        if len(self.late) < _MOST:
            self.late.append((now - since, now))
        worked = {ident: ns for ident, ns in _worked().items() if self._beside is None or ident != self._beside.ident}
        if not self._begin:
            if len(self.intervals) >= _MOST:
                return
            self._begin, self._before = now - delay, worked
            self.intervals.append((self._begin, now, (), used * delay // max(since, delay)))
            return
        least = _WORKED * (now - self._begin)
        threads = [thread for thread, ns in worked.items() if ns - self._before.get(thread, ns) > least]
        self.intervals[-1] = self._begin, now, tuple(sorted(threads)), self.intervals[-1][3] + used

    def ns(self) -> int:
        """Return the time in which several threads took turns; -1 if unknown."""
        if not self.measures or not os.path.exists(_OWN):
            return -1
        return sum(end - begin for begin, end, threads, _ in self.intervals if len(threads) > 1)


def _worked() -> dict[int, int]:
    """Return the processor time of each other Python thread (ns), by `threading.get_ident`."""
    times = {}
    for thread in threading.enumerate():
        if thread.ident is not None and thread is not threading.current_thread():
            try:
                with open(f"/proc/self/task/{thread.native_id}/schedstat") as file:
                    times[thread.ident] = int(file.read().split()[0])
            except OSError:  # it has just ended
                pass
    return times


@contextmanager
def own_wait() -> Iterator[Callable[[], int]]:
    """Yield a function that returns this thread's wait for processors (ns); 0 if the system does not report it."""
    try:
        file = open(_OWN, "rb")  # noqa: SIM115 - closed below
    except OSError:
        yield lambda: 0
        return
    with file:
        yield lambda: int(os.pread(file.fileno(), 80, 0).split()[1])
