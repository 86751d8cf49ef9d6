"""What a run needs of the processors, and whether it held Python's lock (the GIL) meanwhile.

Guarantees: outside `held_part` nothing is changed or slowed; that one raises the interpreter's switch
interval while it runs, and puts it back whatever happens.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["Needed", "cores", "held_part"]

_SWITCH = 0.015  # seconds that a thread which wants the lock waits before it asks for it
_SLEEP = 0.001
_SAMPLES = 12
_LONGEST = 0.5

_TASKS = Path("/proc/self/task")


def cores() -> int:
    """Return how many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


class Needed:
    """Processor time of this process from when this is made, and what it waited for while others had it.

    The wait is known on Linux alone, of threads that live on.
    """

    def __init__(self) -> None:
        self._waited = _waited()
        self._used = time.process_time_ns()

    def ns(self) -> int:
        """Return how much until now."""
        used = time.process_time_ns() - self._used
        return used + sum(max(0, ns - self._waited.get(task, 0)) for task, ns in _waited().items())


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


def held_part(run: Callable[[], object]) -> float:
    """Return the part of the time of a run in which somebody held Python's lock.

    Another thread wakes up again and again. Where it gets the lock late, the lock was held: a thread that
    computes in Python gives it up only when asked, after the switch interval.

    Parameters
    ----------
    run : callable
        Called again until there are samples enough, or half a second has gone.

    Returns
    -------
    float
        0 to 1; -1 if there were too few samples.
    """
    late: list[bool] = []
    stop = threading.Event()

    def sample() -> None:
        while not stop.is_set():
            begun = time.perf_counter()
            time.sleep(_SLEEP)
            late.append(time.perf_counter() - begun > _SLEEP + 0.7 * _SWITCH)

    thread = threading.Thread(target=sample, name="bls-lock-probe", daemon=True)
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    try:
        thread.start()
        begun = time.perf_counter()
        while True:
            run()
            if len(late) >= _SAMPLES or time.perf_counter() - begun > _LONGEST:
                break
        count = len(late)
    finally:
        stop.set()
        sys.setswitchinterval(before)
        thread.join()
    return sum(late[:count]) / count if count >= 3 else -1.0
