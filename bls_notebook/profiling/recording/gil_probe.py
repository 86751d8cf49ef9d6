"""Sample when the GIL was held while another thread wanted it, and which threads took turns with it.

A thread wakes up periodically while a profile is on. If it gets the GIL late although it did not wait for a
processor, and the process computed meanwhile, another thread held the GIL; the threads that had processor
time took turns.

Guarantees: the cost is that of one sleeping thread. The thread ends soon after its profile, and nothing waits
for it. Linux only: other systems do not report what threads wait for.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from pathlib import Path
from time import perf_counter_ns, process_time_ns

from bls_notebook.engine.recording import log as recording
from bls_notebook.profiling.records.spans import LockHeld

_PAUSE = 3_000_000  # ns between two looks
_LATE = 0.6  # of the time after which a thread that wants the lock asks for it
_COMPUTED = 0.1  # of that time, at least, by the process: else the machine stood still
_MOST = 10_000  # times that are kept
_WORKED = 0.02  # of the time that the lock was held: who has less took no turns
_TASKS = Path("/proc/self/task")


class LockProbe:
    """Looks from `start` until `stop`, or until nobody records."""

    def __init__(self) -> None:
        self._found: list[LockHeld] = []
        self._over = threading.Event()

    def start(self, log: recording.Log) -> None:
        """Begin to look; nothing happens where there is no such lock, or it cannot be told."""
        if _TASKS.exists() and getattr(sys, "_is_gil_enabled", lambda: True)():
            threading.Thread(target=self._look, args=(log,), name="bls-lock-probe", daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()

    def held(self, begin: int, end: int) -> tuple[LockHeld, ...]:
        """Return when the lock was held between two readings of `perf_counter_ns`, from the first on."""
        return tuple(
            LockHeld(max(each.begin - begin, 0), min(each.end, end) - begin, each.threads)
            for each in list(self._found)
            if each.begin < end and each.end > begin
        )

    def _look(self, log: recording.Log) -> None:
        late_from = round(1e9 * _LATE * sys.getswitchinterval())
        turns: _Turns | None = None
        with (_TASKS / str(threading.get_native_id()) / "schedstat").open("rb") as file:
            own = file.fileno()
            while recording.active is log and len(self._found) < _MOST:
                begun, used, waited = perf_counter_ns(), process_time_ns(), _schedstat(own)[1]
                if self._over.wait(_PAUSE / 1e9):
                    return
                now = perf_counter_ns()
                late = now - begun - _PAUSE - (_schedstat(own)[1] - waited)
                if late < late_from or process_time_ns() - used < _COMPUTED * late:
                    turns = None
                elif turns is None:
                    turns = _Turns(now - late)
                    self._found.append(turns.record(now))
                else:
                    self._found[-1] = turns.record(now)


class _Turns:
    """A time in which the lock is held, and the threads that work."""

    def __init__(self, begin: int) -> None:
        self._begin = begin
        self._before = _worked()

    def record(self, now: int) -> LockHeld:
        worked, least = _worked(), _WORKED * (now - self._begin)
        found = [t for t, ns in worked.items() if ns - self._before.get(t, ns) > least]
        return LockHeld(self._begin, now, tuple(sorted(found)))


def _worked() -> dict[int, int]:
    """Return how long each thread has worked, ns, by what Python calls it."""
    found = {}
    for thread in threading.enumerate():
        # It may end meanwhile.
        with contextlib.suppress(OSError, ValueError, IndexError):
            if thread.ident is not None and thread.native_id is not None:
                text = (_TASKS / str(thread.native_id) / "schedstat").read_bytes()
                found[thread.ident] = int(text.split()[0])
    return found


def _schedstat(file: int) -> tuple[int, int]:
    """Return how long the thread of an open file has worked, and has waited for processors, ns."""
    worked, waited, *_ = os.pread(file, 80, 0).split()
    return int(worked), int(waited)
