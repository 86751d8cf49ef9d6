"""Waits for the GIL: `GilProbe` records them during a profile, `gil_share_of` measures the GIL's share of a run.

Guarantees: threads are inspected, never stopped. `GilProbe` costs one sleeping thread; `held` lets it note its last
wait, but waits for it no longer than `_LAST`. Only `gil_share_of` changes anything: it raises the interpreter's switch
interval for the run and restores it. Waits for processors are known on Linux only.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from random import Random

from bls_notebook.profiling.request_log import Log
from bls_notebook.profiling.span_recorder import running_log

from .gil_turns import GilTurns, own_wait
from .records.spans import LockHeld
from .resource_time import LOCK_PROBE, OtherPrograms, ProcessorUse, cores

_PROBE_PAUSE = 0.006  # seconds between two samples, on average
_LAST = 0.1  # seconds; only threads that compute in Python after the profile let it take as long


class GilProbe:
    """Samples the wait for the GIL from `start` until `stop`, or until the recording ends."""

    def __init__(self) -> None:
        # The notebook's own code mostly runs before and after its requests, and not beside them.
        self._turns = GilTurns(beside=threading.main_thread())
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, log: Log) -> None:
        """Start sampling; without a GIL, or if the system does not report threads' times, do nothing."""
        if self._turns.measures:
            self._thread = threading.Thread(target=self._sample, args=(log,), name=LOCK_PROBE, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._over.set()

    def held(self, begin: int, end: int) -> tuple[LockHeld, ...]:
        """Return the intervals between two `perf_counter_ns` in which the GIL was held, in ns since `begin`."""
        if self._thread is not None and self._over.is_set():
            self._thread.join(_LAST)
        return tuple(
            LockHeld(max(start - begin, 0), min(stop, end) - begin, threads, cpu)
            for start, stop, threads, cpu in list(self._turns.intervals)
            if start < end and stop > begin
        )

    def late(self, begin: int) -> list[tuple[int, int]]:
        """Return the times before samples that found the GIL held, in ns since `begin`; call `held` before."""
        return [(start - begin, stop - begin) for start, stop in list(self._turns.late)]

    def _sample(self, log: Log) -> None:
        for _ in self._turns.samples(self._over, _PROBE_PAUSE):
            if running_log() is not log:
                return


_SWITCH = 0.015  # seconds that a waiting thread waits before it asks the running one to release the GIL
_SLEEPS = 0.0003, 0.0017  # seconds; random, else requests that take as long would meet all samples at the same moment
_SHORT = 100_000  # ns that a sample is late, beyond the samples of a process that does nothing, if the GIL was held
_IDLE = 10  # samples before the run
_SAMPLES = 24
_DOUBT = 0.25  # fraction of the time for which it is not known who had the GIL
_LONGEST = 0.5


def gil_share_of(run: Callable[[], object]) -> float:
    """Return the fraction (0 to 1) of the time of `run` in which the GIL was held; -1 if unknown.

    `run` is called repeatedly, until there are enough samples or half a second has passed; meanwhile a thread wakes
    up at random times. A thread that computes in Python releases the GIL only when asked, after the switch interval, so
    the sampler gets it late. Its waits for a processor do not count.
    """
    samples: list[tuple[int, int]] = []
    begin, stop = threading.Event(), threading.Event()
    programs = OtherPrograms()

    def sample() -> None:
        chance = Random()
        with own_wait() as waits:
            waited, now = waits(), time.perf_counter_ns()
            while not stop.wait(pause := chance.uniform(*_SLEEPS)):
                before, had_waited = now, waited
                waited, now = waits(), time.perf_counter_ns()
                whole = now - before - (waited - had_waited)
                samples.append((whole - round(1e9 * pause), whole))
                if len(samples) == _IDLE:
                    begin.set()

    thread = threading.Thread(target=sample, name=LOCK_PROBE, daemon=True)
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    try:
        thread.start()
        begin.wait(_LONGEST)
        idle, begun, use = len(samples), time.perf_counter(), ProcessorUse()
        while True:
            run()
            if len(samples) >= idle + _SAMPLES or time.perf_counter() - begun > _LONGEST:
                break
        # Threads of this process wait for each other, too, as the GIL passes from one to the next.
        processors = round(1e9 * cores() * (time.perf_counter() - begun))
        measured, others = samples[:], min(use.waited(), round(programs.share() * processors))
    finally:
        stop.set()
        sys.setswitchinterval(before)
        thread.join()
    return held_share(measured[:_IDLE], measured[idle:], others)


def held_share(idle: Sequence[tuple[int, int]], samples: Sequence[tuple[int, int]], others: int) -> float:
    """Return the fraction of the samples' time in which the GIL was held; -1 if unknown.

    A sample is how late it was and how long it took, ns; `idle` were taken before. `others` is the time that other
    threads waited for a processor that other programs used, ns: one of them may have had the GIL meanwhile.
    """
    if len(samples) < 3:
        return -1.0
    whole = sum(each for _, each in samples)
    late = _SHORT + max([0, *sorted(delay for delay, _ in idle)[:-1]])  # one may be late by chance
    held = sum(each for delay, each in samples if delay > late)
    if min(others, held) > _DOUBT * whole:
        return -1.0
    return max(0, held - others) / whole
