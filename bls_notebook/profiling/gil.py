"""Waits for the GIL: `GilProbe` records them during a profile, `gil_share_of` measures the GIL's share of a run.

`GilProbe` wakes up periodically. If it gets the GIL late although it did not wait for a processor, and the process
computed meanwhile, another thread held the GIL.

Guarantees: threads are inspected, never stopped. `GilProbe` costs one sleeping thread, which ends soon after its
profile; nothing waits for it. Only `gil_share_of` changes anything: it raises the interpreter's switch interval for the
run and restores it. Waits for processors are known on Linux only.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter_ns, process_time_ns

from bls_notebook.profiling.request_log import Log
from bls_notebook.profiling.span_recorder import running_log

from .records.spans import LockHeld
from .resource_time import LOCK_PROBE, ProcessorUse, thread_times

_PROBE_PAUSE = 3_000_000  # ns between two samples
_PROBE_LATE = 0.6  # fraction of the GIL switch interval from which on a delay counts
_COMPUTED = 0.1  # fraction of the delay that the process must have computed; else the machine was suspended
_MOST_HELD = 10_000  # intervals kept
_WORKED = 0.02  # fraction of an interval: a thread with less processor time did not hold the GIL
_TASKS = Path("/proc/self/task")
_OWN = Path("/proc/thread-self/schedstat")


class GilProbe:
    """Samples the wait for the GIL from `start` until `stop`, or until the recording ends."""

    def __init__(self) -> None:
        self._intervals: list[LockHeld] = []
        self._over = threading.Event()

    def start(self, log: Log) -> None:
        """Start sampling; without a GIL, or if the system does not report threads' times, do nothing."""
        if _TASKS.exists() and getattr(sys, "_is_gil_enabled", lambda: True)():
            threading.Thread(target=self._sample, args=(log,), name=LOCK_PROBE, daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def held(self, begin: int, end: int) -> tuple[LockHeld, ...]:
        """Return the intervals between two `perf_counter_ns` in which the GIL was held, in ns since `begin`."""
        return tuple(
            LockHeld(max(held.begin - begin, 0), min(held.end, end) - begin, held.threads)
            for held in list(self._intervals)
            if held.begin < end and held.end > begin
        )

    def _sample(self, log: Log) -> None:
        late_from = round(1e9 * _PROBE_LATE * sys.getswitchinterval())
        turns: _Turns | None = None
        with _own_wait() as own_wait:
            while running_log() is log and len(self._intervals) < _MOST_HELD:
                begun, used, waited = perf_counter_ns(), process_time_ns(), own_wait()
                if self._over.wait(_PROBE_PAUSE / 1e9):
                    return
                now = perf_counter_ns()
                late = now - begun - _PROBE_PAUSE - (own_wait() - waited)
                if late < late_from or process_time_ns() - used < _COMPUTED * late:
                    turns = None
                elif turns is None:
                    turns = _Turns(now - late)
                    self._intervals.append(turns.record(now))
                else:
                    self._intervals[-1] = turns.record(now)


class _Turns:
    """The threads that compute during an interval in which the GIL is held."""

    def __init__(self, begin: int) -> None:
        self._begin = begin
        self._before = _worked()

    def record(self, now: int) -> LockHeld:
        worked, least = _worked(), _WORKED * (now - self._begin)
        threads = [t for t, ns in worked.items() if ns - self._before.get(t, ns) > least]
        return LockHeld(self._begin, now, tuple(sorted(threads)))


def _worked() -> dict[int, int]:
    """Return the processor time of each Python thread (ns), by `threading.get_ident`."""
    times = thread_times()
    threads = [(thread.ident, thread.native_id) for thread in threading.enumerate()]
    return {ident: times[native].worked for ident, native in threads if ident is not None and native in times}


@contextlib.contextmanager
def _own_wait() -> Iterator[Callable[[], int]]:
    """Yield a function that returns this thread's wait for processors (ns); 0 if the system does not report it."""
    try:
        file = _OWN.open("rb")
    except OSError:
        yield lambda: 0
        return
    with file:
        yield lambda: int(os.pread(file.fileno(), 80, 0).split()[1])


_SWITCH = 0.015  # seconds that a waiting thread waits before it asks the running one to release the GIL
_SLEEP = 0.001
_LATE_NS = round(1e9 * (_SLEEP + 0.7 * _SWITCH))
_SAMPLES = 12
_LONGEST = 0.5


def gil_share_of(run: Callable[[], object]) -> float:
    """Return the fraction (0 to 1) of the time of `run` in which the GIL was held; -1 for too few samples.

    `run` is called repeatedly, until there are enough samples or half a second has passed; meanwhile a thread wakes
    up periodically. A thread that computes in Python releases the GIL only when asked, after the switch interval, so
    the sampler gets it late. Waits for a processor do not count: neither the sampler's nor those of other threads, one
    of which may have had the GIL meanwhile.
    """
    samples: list[int] = []
    stop = threading.Event()
    use = ProcessorUse()

    def sample() -> None:
        with _own_wait() as own_wait:
            now, waited = time.perf_counter_ns(), own_wait()
            while not stop.wait(_SLEEP):
                # Read the clock and the wait together: the reads themselves may have to wait for the GIL.
                before, had_waited = now, waited
                now, waited = time.perf_counter_ns(), own_wait()
                samples.append(now - before - (waited - had_waited))

    thread = threading.Thread(target=sample, name=LOCK_PROBE, daemon=True)
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    try:
        thread.start()
        begun = time.perf_counter()
        while True:
            run()
            if len(samples) >= _SAMPLES or time.perf_counter() - begun > _LONGEST:
                break
        measured, others = samples[:], use.waited()
    finally:
        stop.set()
        sys.setswitchinterval(before)
        thread.join()
    if len(measured) < 3:
        return -1.0
    return max(0, sum(ns for ns in measured if ns > _LATE_NS) - others) / sum(measured)
