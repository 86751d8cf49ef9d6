"""Measure processors and GPUs: their use, waits for a free one, and the time of an `execute` on a GPU."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bls_notebook.engine import in_memory

PROBES = LOCK_PROBE, STACK_SAMPLER = "bls-lock-probe", "bls-stack-sampler"  # threads that only measure
_TICK = 10_000_000  # ns: the unit of processor times in /proc/stat
_STAT, _LOAD = Path("/proc/stat"), Path("/proc/loadavg")
_LOOKS = 3
_SPINS = 0.3  # processor time over wall time: above it, a process without work waits busily
_TASKS = "/proc/{}/task"
_CPU_CLOCK = 2  # of a process: CPUCLOCK_SCHED of Linux


def cores() -> int:
    """Return the number of processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def load_per_core() -> float:
    """Return how many programs share a processor of this machine, by its load average; 1 if unknown, and at least 1."""
    try:
        return max(1.0, os.getloadavg()[0] / cores())
    except (AttributeError, OSError):  # Windows has no load average
        return 1.0


class ProcessorUse:
    """Measures a process since this object was created: processor time, and threads' waits for a processor (ns).

    `pid` is the number of a worker, by default this process; `whole` measures since the process was started.
    """

    def __init__(self, pid: int = 0, whole: bool = False) -> None:
        self._pid = pid
        self._threads = {} if whole else thread_times(pid)
        self._used = 0 if whole else _process_time(pid)

    def used(self) -> int:
        return max(0, _process_time(self._pid) - self._used)

    def of_libraries(self) -> int:
        """Return the part of `used` of threads that are not Python's, such as those of a BLAS library.

        Only Linux reports it, and only for threads that have not ended; 0 elsewhere, and for a worker.
        """
        if self._pid:
            return 0
        python = {thread.native_id for thread in threading.enumerate()}
        return sum(times.worked for thread, times in self._since().items() if thread not in python)

    def computing(self) -> tuple[int, int]:
        """Return `used` and `of_libraries` without busy waits: threads of OpenBLAS and OpenMP spin for up to 0.2 s.

        A thread of a library that spins now computed only beside the thread of Python that called it.
        """
        used = self.used()
        libraries = min(used, self.of_libraries())
        computed = min(libraries, (cores() - 1) * (used - libraries))
        if computed < libraries and spins():
            return used - libraries + computed, computed
        return used, libraries

    def waited(self) -> int:
        """Return the time that runnable threads waited for a processor that another program or thread used.

        Only Linux reports it, and only for threads that have not ended; 0 elsewhere. The threads that only measure
        do not count.
        """
        probes = {t.native_id for t in threading.enumerate() if t.name in PROBES}
        return sum(times.waited for thread, times in self._since().items() if thread not in probes)

    def _since(self) -> dict[int, ThreadTimes]:
        """Return the times of each thread since this object was created."""
        now, zero = thread_times(self._pid), ThreadTimes(0, 0)
        pairs = {thread: zip(times, self._threads.get(thread, zero), strict=True) for thread, times in now.items()}
        return {thread: ThreadTimes(*(max(0, new - old) for new, old in pair)) for thread, pair in pairs.items()}


def spins() -> bool:
    """Return whether a thread of this process computes now, though nothing has to: it busily waits for work."""
    used, begun = time.process_time_ns(), time.perf_counter_ns()
    time.sleep(0.001)
    return time.process_time_ns() - used > _SPINS * (time.perf_counter_ns() - begun)


def workers() -> dict[int, str]:
    """Return the instances that are processes by the numbers of their processes, in all repositories."""
    found = ((p.pid, name) for model in list(in_memory) for name, p in model.processes.items())
    return {pid: name for pid, name in found if pid}


def _process_time(pid: int) -> int:
    """Return the processor time of a process (ns); 0 if it has ended, or if the system does not report it."""
    if not pid:
        return time.process_time_ns()
    try:
        return time.clock_gettime_ns(~pid << 3 | _CPU_CLOCK)
    except (AttributeError, OSError):
        return 0


class OtherPrograms:
    """Measures how much other programs use this process's processors, since this object was created."""

    def __init__(self) -> None:
        self._are_runnable = _are_runnable()
        self._idle = _idle()
        self._used, self._began = time.process_time_ns(), time.perf_counter_ns()

    def share(self, workers: int = 0) -> float:
        """Return the fraction (0 to 1) of the processors' time that other programs used.

        Without a program that is seen to run at the begin and now, the fraction that they certainly used. Only Linux
        reports it; 0 elsewhere. `workers` is the processor time of this process's workers, ns.
        """
        idle, are_seen = _idle(), self._are_runnable and _are_runnable()
        whole = (time.perf_counter_ns() - self._began) * len(idle)
        if not whole or idle.keys() != self._idle.keys():
            return 0.0
        left = whole - (time.process_time_ns() - self._used) - workers
        # The idle time of a processor is rounded down to ticks.
        left -= sum(idle[name] - self._idle[name] + (0 if are_seen else _TICK) for name in idle)
        return min(max(0.0, left / whole), 1.0)


def parallel_throughput(threads: int, seconds: float) -> float:
    """Return the present throughput of several threads together, in calls per second of a function that needs no GIL.

    Twice as many threads have less than twice the throughput if they share a core, if other programs use the
    processors, or if this process runs in a container that may not use all of them.
    """
    values = np.linspace(0.0, 1.0, 1 << 17)
    rates: list[float] = []
    ready = threading.Barrier(threads)

    def work() -> None:
        result = np.empty_like(values)
        ready.wait()
        done, now, begun = 0, 0.0, time.perf_counter()
        while now < seconds:  # at least once, however late this thread gets a processor
            np.arctan(values, out=result)  # releases the GIL
            done += 1
            now = time.perf_counter() - begun
        rates.append(done / now)

    started = [threading.Thread(target=work, name="bls-parallel-probe", daemon=True) for _ in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return sum(rates)


def _are_runnable() -> bool:
    """Return whether a thread of another program runs, or waits for a processor; False if unknown."""
    for _ in range(_LOOKS):
        if not _runnable():
            return False
        time.sleep(0.0005)  # a thread of our own may have fallen asleep between two files that were read
    return True


def _runnable() -> int:
    """Return how many threads of other programs run or wait for a processor; 0 if unknown."""
    try:
        runnable = int(_LOAD.read_text(encoding="utf-8").split()[3].partition("/")[0])
        tasks = list(Path(_TASKS.format("self")).iterdir()) if runnable > 1 else []
    except (OSError, ValueError, IndexError):
        return 0
    own = 1
    for task in tasks:
        with contextlib.suppress(OSError):  # the thread has ended since
            own += task.name != str(threading.get_native_id()) and b") R " in (task / "stat").read_bytes()
    return max(0, runnable - own)


def _idle() -> dict[str, int]:
    """Return the idle time of each processor of this process (ns); empty if unknown."""
    try:
        mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        lines = [line.split() for line in _STAT.read_text(encoding="utf-8").splitlines()]
        return {line[0]: (int(line[4]) + int(line[5])) * _TICK for line in lines if line[0] in mine}
    except (AttributeError, OSError, ValueError, IndexError):
        return {}


class ThreadTimes(NamedTuple):
    """A thread's time on processors and its wait for one, ns."""

    worked: int
    waited: int


def thread_times(pid: int = 0) -> dict[int, ThreadTimes]:
    """Return the times of each thread of a process, by native id; empty if the system does not report them."""
    try:
        tasks = list(Path(_TASKS.format(pid or "self")).iterdir())
    except OSError:
        return {}
    times = {}
    for task in tasks:
        with contextlib.suppress(OSError, ValueError, IndexError):  # the thread has ended since
            worked, waited, *_ = map(int, (task / "schedstat").read_text("utf-8").split())
            times[int(task.name)] = ThreadTimes(worked, waited)
    return times


class DeviceTime:
    """The time between two CUDA events of a stream; creating it records the first.

    `cuda` is ``cupy.cuda``, `index` the number of the GPU.
    """

    __slots__ = ("_begin", "_cuda", "_end", "_index", "_stream")

    def __init__(self, cuda: Any, index: int) -> None:
        self._cuda = cuda
        self._index = index
        self._end: Any = None
        with cuda.Device(index):
            self._stream: Any = cuda.get_current_stream()
            self._begin = cuda.Event()
            self._begin.record(self._stream)

    def end(self) -> None:
        """Record the second event in the same stream. It never raises."""
        if self._stream is None:
            return
        try:
            with self._cuda.Device(self._index):
                event = self._cuda.Event()
                event.record(self._stream)
            self._end = event
        except Exception:
            pass  # the GPU failed, or the model closed its stream: no measurement
        self._stream = None

    def ns(self) -> int:
        """Wait for the GPU and return the time in ns; -1 if unknown."""
        if self._end is None:
            return -1
        try:
            self._end.synchronize()
            return int(self._cuda.get_elapsed_time(self._begin, self._end) * 1e6)
        except Exception:  # the GPU failed since; the other figures of the request remain valid
            return -1


def device_timer() -> Callable[[int], DeviceTime | None] | None:
    """Return a function that starts a measurement on the GPU of a number; None if no CUDA GPU is in use."""
    cuda = getattr(sys.modules.get("cupy"), "cuda", None)
    try:
        if cuda is None or not cuda.runtime.getDeviceCount():
            return None
    except Exception:  # CuPy without a driver
        return None

    def begin(index: int) -> DeviceTime | None:
        try:
            return DeviceTime(cuda, index)
        except Exception:
            return None

    return begin
