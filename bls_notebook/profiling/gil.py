"""Waits for the GIL: `GilProbe` records them during a profile, `gil_share_of` measures the GIL's share of a run.

Guarantees: threads are inspected, never stopped. `GilProbe` costs one sleeping thread, which ends soon after its
profile; nothing waits for it. Only `gil_share_of` changes anything: it raises the interpreter's switch interval for the
run and restores it. Waits for processors are known on Linux only.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from bls_notebook.profiling.request_log import Log
from bls_notebook.profiling.span_recorder import running_log

from .gil_turns import GilTurns, own_wait
from .records.spans import LockHeld
from .resource_time import LOCK_PROBE, ProcessorUse

_PROBE_PAUSE = 0.003  # seconds between two samples


class GilProbe:
    """Samples the wait for the GIL from `start` until `stop`, or until the recording ends."""

    def __init__(self) -> None:
        self._turns = GilTurns()
        self._over = threading.Event()

    def start(self, log: Log) -> None:
        """Start sampling; without a GIL, or if the system does not report threads' times, do nothing."""
        if self._turns.measures:
            threading.Thread(target=self._sample, args=(log,), name=LOCK_PROBE, daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def held(self, begin: int, end: int) -> tuple[LockHeld, ...]:
        """Return the intervals between two `perf_counter_ns` in which the GIL was held, in ns since `begin`."""
        return tuple(
            LockHeld(max(start - begin, 0), min(stop, end) - begin, threads)
            for start, stop, threads in list(self._turns.intervals)
            if start < end and stop > begin
        )

    def _sample(self, log: Log) -> None:
        for _ in self._turns.samples(self._over, _PROBE_PAUSE):
            if running_log() is not log:
                return


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
        with own_wait() as waits:
            now, waited = time.perf_counter_ns(), waits()
            while not stop.wait(_SLEEP):
                # Read the clock and the wait together: the reads themselves may have to wait for the GIL.
                before, had_waited = now, waited
                now, waited = time.perf_counter_ns(), waits()
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
