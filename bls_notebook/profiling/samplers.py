"""Samplers: threads that watch the GIL, the processors and the stacks of models while requests run.

`LockProbe` records when the GIL was held while another thread wanted it. It wakes up periodically; if it
gets the GIL late although it did not wait for a processor, and the process computed meanwhile, another
thread held the GIL. `gil_share_of` measures how much of a run held the GIL.
`StackSampler` records the lines of model code at which threads and coroutines are.

Guarantees: threads are inspected, never stopped. `LockProbe` costs one sleeping thread, which ends soon
after its profile; nothing waits for it. Only `gil_share_of` changes anything: it raises the interpreter's
switch interval while it runs, and restores it. Waits for processors are known on Linux only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from types import CodeType, FrameType, TracebackType
from typing import Any

import numpy as np

from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.exception_text import HOME, ModelHome
from bls_notebook.engine.recording import log as recording
from bls_notebook.engine.recording.code_lines import line_of
from bls_notebook.engine.waiting.stack_frames import no_collection, walk_back
from bls_notebook.records.raw_events import CodeLine

from .records.comparison import LoopSeen
from .records.spans import LockHeld

_PROBE_PAUSE = 3_000_000  # ns between two looks
_PROBE_LATE = 0.6  # of the time after which a thread that wants the lock asks for it
_COMPUTED = 0.1  # of that time, at least, by the process: else the machine stood still
_MOST_HELD = 10_000  # times that are kept
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
        late_from = round(1e9 * _PROBE_LATE * sys.getswitchinterval())
        turns: _Turns | None = None
        with (_TASKS / str(threading.get_native_id()) / "schedstat").open("rb") as file:
            own = file.fileno()
            while recording.active is log and len(self._found) < _MOST_HELD:
                begun, used, waited = perf_counter_ns(), process_time_ns(), _schedstat(own)[1]
                if self._over.wait(_PROBE_PAUSE / 1e9):
                    return
                now = perf_counter_ns()
                late = now - begun - _PROBE_PAUSE - (_schedstat(own)[1] - waited)
                if late < late_from or process_time_ns() - used < _COMPUTED * late:
                    turns = None
                elif turns is None:
                    turns = _Turns(now - late)
                    self._found.append(turns.record(now))
                else:
                    self._found[-1] = turns.record(now)


class _Turns:
    """A time in which the GIL is held, and the threads that compute."""

    def __init__(self, begin: int) -> None:
        self._begin = begin
        self._before = _worked()

    def record(self, now: int) -> LockHeld:
        worked, least = _worked(), _WORKED * (now - self._begin)
        found = [t for t, ns in worked.items() if ns - self._before.get(t, ns) > least]
        return LockHeld(self._begin, now, tuple(sorted(found)))


def _worked() -> dict[int, int]:
    """Return the processor time of each thread (ns), by `threading.get_ident`."""
    found = {}
    for thread in threading.enumerate():
        # It may end meanwhile.
        with contextlib.suppress(OSError, ValueError, IndexError):
            if thread.ident is not None and thread.native_id is not None:
                text = (_TASKS / str(thread.native_id) / "schedstat").read_bytes()
                found[thread.ident] = int(text.split()[0])
    return found


def _schedstat(file: int) -> tuple[int, int]:
    """Return a thread's processor time and its wait for processors (ns), from its open schedstat file."""
    worked, waited, *_ = os.pread(file, 80, 0).split()
    return int(worked), int(waited)


_SWITCH = 0.015  # seconds that a thread which wants the lock waits before it asks for it
_SLEEP = 0.001
_LATE_NS = round(1e9 * (_SLEEP + 0.7 * _SWITCH))
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
    """Return the idle time of each processor of this process (ns); empty if unknown."""
    try:
        mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        lines = [line.split() for line in _STAT.read_text().splitlines()]
        return {line[0]: (int(line[4]) + int(line[5])) * _TICK for line in lines if line[0] in mine}
    except (AttributeError, OSError, ValueError, IndexError):
        return {}


def _waited() -> dict[str, int]:
    """Return each thread's wait for processors (ns); empty if the system does not report it."""
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


def gil_share_of(run: Callable[[], object]) -> float:
    """Return the fraction (0 to 1) of the time of `run` in which the GIL was held; -1 for too few samples.

    A thread wakes up periodically while `run` is called, again and again until there are samples enough, or half a
    second has passed. A thread that computes in Python gives the GIL up only when asked, after the switch interval, so
    the sampler gets it late. What the sampler waited for a processor does not count.
    """
    samples: list[int] = []
    stop = threading.Event()

    def look() -> None:
        with contextlib.ExitStack() as stack:
            own = -1
            with contextlib.suppress(OSError):
                own = stack.enter_context(_OWN.open("rb")).fileno()
            now, waited = time.perf_counter_ns(), _has_waited(own)
            while not stop.wait(_SLEEP):
                # The clock and the wait of the same moment, as asking may itself have to wait for the GIL.
                before, had_waited = now, waited
                now, waited = time.perf_counter_ns(), _has_waited(own)
                samples.append(now - before - (waited - had_waited))

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
        took = samples[:]
    finally:
        stop.set()
        sys.setswitchinterval(before)
        thread.join()
    return sum(ns for ns in took if ns > _LATE_NS) / sum(took) if len(took) > 2 else -1.0


def _has_waited(schedstat: int) -> int:
    """Return a thread's wait for processors (ns), from its open schedstat file; 0 without one."""
    return 0 if schedstat < 0 else int(os.pread(schedstat, 80, 0).split()[1])


_STACK_PAUSE = 0.002  # seconds between two looks
_FRAMES = 40  # from the innermost on


class StackSampler:
    """Looks at where the threads, and the coroutines that await, of models stand."""

    def __init__(self, models: Collection[LoadedModel]) -> None:
        self._models = {model.name: model for model in models}
        self._seen: defaultdict[str, Counter[tuple[CodeType, int]]] = defaultdict(Counter)
        self._loops: Counter[LoadedModel] = Counter()  # looks at which an event loop had something to do
        self._blocked: Counter[LoadedModel] = Counter()  # and stood in the model's code
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="bls-standing", daemon=True)

    def __enter__(self) -> StackSampler:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(_STACK_PAUSE):
            with no_collection():
                threads = {ident: _inmost(walk_back(f)) for ident, f in sys._current_frames().items()}
                for found in threads.values():
                    self._note(found)
                for model in self._models.values():
                    for instance in model.instances:
                        if instance.loop_thread:
                            self._look_at_loop(model, instance, threads.get(instance.loop_thread))

    def _look_at_loop(self, model: LoadedModel, instance: Instance, there: FrameType | None) -> None:
        executions = []
        with contextlib.suppress(RuntimeError):  # it changes meanwhile
            executions = list(instance.loop.executions)
        self._loops[model] += bool(executions)
        self._blocked[model] += bool(executions) and there is not None
        for execution in executions:
            if there is None and execution.task is not None:
                for task in islice(_waiting(execution.task), _FRAMES):
                    self._note(_inmost(reversed([*_awaiting(task.get_coro())])))

    def _note(self, frame: FrameType | None) -> None:
        if frame is not None:
            self._seen[dict.__getitem__(frame.f_globals, HOME).model][frame.f_code, frame.f_lasti] += 1

    def line(self, model: str) -> CodeLine | None:
        """Return the line of a model at which most stood; None where nobody was seen."""
        if not self._seen[model]:
            return None
        ((code, last), _), *_ = self._seen[model].most_common(1)
        return line_of((code, last, model))

    def loops(self) -> tuple[LoopSeen, ...]:
        """Return which part of the time event loops were in models' code, while they had something to do."""
        return tuple(
            LoopSeen(model.name, model.version, self._blocked[model] / looks)
            for model, looks in self._loops.items()
            if looks
        )


def _inmost(frames: Iterator[FrameType]) -> FrameType | None:
    """Return the first frame that runs a model's code."""
    for frame in islice(frames, _FRAMES):
        home = dict.get(frame.f_globals, HOME)
        if home is not None and issubclass(type(home), ModelHome):
            return frame
    return None


def _waiting(task: asyncio.Task[Any]) -> Iterator[asyncio.Task[Any]]:
    """Yield the innermost tasks that a task waits for, through `gather`; the task itself if there are none."""
    todo, seen = [task], set[asyncio.Task[Any]]()
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        awaited = getattr(one, "_fut_waiter", None)
        futures = getattr(awaited, "_children", None) or [awaited]  # of asyncio.gather
        inner = [f for f in futures if isinstance(f, asyncio.Task) and not f.done()]
        todo += inner
        if not inner:
            yield one


def _awaiting(coroutine: object) -> Iterator[FrameType]:
    """Yield the frames of a coroutine and of the coroutines that it awaits, outermost first."""
    for _ in range(_FRAMES):
        frame = getattr(coroutine, "cr_frame", None)
        if frame is None:
            return
        yield frame
        coroutine = getattr(coroutine, "cr_await", None)
