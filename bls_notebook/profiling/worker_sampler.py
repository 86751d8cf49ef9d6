"""`WorkerSampler`: samples the executions of a model in a process. A worker runs this module; its Python may be 3.8.

The kernel adds the result to the samples of its own `StackSampler`. Samples have no times, only the time between two,
so the clocks of worker and kernel need not agree.

The sampler is late if another thread holds the GIL. If several threads compute between two late samples, they took
turns with it (`GilTurns`; `gil` finds the same in the kernel).
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from functools import lru_cache
from glob import glob
from time import perf_counter_ns, process_time_ns
from typing import Any

from bls_notebook.profiling.own_code import PACKAGE, WAIT, kind_of, own_stack
from bls_notebook.profiling.stack_samples import PAUSE, SHARE, StackSamples, stacks_of_task

_LATE = 0.6  # fraction of the GIL switch interval from which on a delay counts
_COMPUTED = 0.1  # fraction of the delay that the process must have computed; else the machine was suspended
_WORKED = 0.02  # fraction of an interval: a thread with less processor time did not hold the GIL

_samplers: dict[int, WorkerSampler] = {}  # by the kernel's numbers


class GilTurns:
    """Adds up the time (`ns`) in which several threads computed while a sampler waited for the GIL; -1 if unknown."""

    def __init__(self) -> None:
        measures = getattr(sys, "_is_gil_enabled", lambda: True)() and glob("/proc/self/task/*/schedstat")
        self.ns = 0 if measures else -1
        self._before: dict[str, int] = {}  # processor time of each thread when the sampler was late
        self._at = 0

    def wait(self, over: threading.Event) -> bool:
        """Wait for `PAUSE` or an event, and note whether that took longer. Called on the sampler's thread."""
        if self.ns < 0:
            return over.wait(PAUSE)
        begun, used, waited = perf_counter_ns(), process_time_ns(), _waited()
        ended = over.wait(PAUSE)
        self.note(perf_counter_ns() - begun - round(1e9 * PAUSE) - (_waited() - waited), process_time_ns() - used)
        return ended

    def note(self, delay: int, used: int) -> None:
        """Note a delay of the sampler and the processor time of the process until then (ns)."""
        late = delay >= _LATE * 1e9 * sys.getswitchinterval() and used >= _COMPUTED * delay
        before, self._before = self._before, _worked() if late else {}
        at, self._at = self._at, perf_counter_ns()
        computed = [t for t, ns in self._before.items() if ns - before.get(t, ns) > _WORKED * (self._at - at)]
        if len(computed) > 1:
            self.ns += self._at - at


def _worked() -> dict[str, int]:
    """Return the processor time of each other thread (ns)."""
    times = {}
    for name in glob("/proc/self/task/*/schedstat"):
        try:
            with open(name) as file:
                times[name] = int(file.read().split()[0])
        except OSError:  # it has just ended
            pass
    times.pop(f"/proc/self/task/{threading.get_native_id()}/schedstat", None)
    return times


def _waited() -> int:
    """Return how long this thread has waited for a processor (ns)."""
    with open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[1])


class WorkerSampler(StackSamples):
    """Samples the executions of a worker until `over` is set."""

    def __init__(self, worker: Any) -> None:
        super().__init__()
        self._worker = worker
        self._seen: set[int] = set()
        self.turns = GilTurns()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._sample, name="bls-stack-sampler", daemon=True)

    def _sample(self) -> None:
        due = 0
        while not self.turns.wait(self.over) and not self.full:
            begun = perf_counter_ns()
            if begun < due:
                continue
            running = dict(self._worker.executing)
            for number in self._seen - running.keys():
                self.ended(number)
            self._seen = set(running)
            if running:
                collects = gc.isenabled()
                gc.disable()
                try:
                    self._look(begun, running)
                finally:
                    if collects:
                        gc.enable()
            ended = perf_counter_ns()
            due = ended + SHARE * (ended - begun)

    def _look(self, now: int, running: dict[int, int]) -> None:
        frames, tasks, loop = sys._current_frames(), self._worker.tasks(), self._worker.loop
        for number, started in running.items():
            task = tasks.get(number)
            if task is not None:
                stack = own_stack(frames.get(self._worker.loop_thread))
                current = asyncio.current_task(loop) if stack else None
                self.note(number, started, now, stacks_of_task(task, current, stack))
            else:
                frame = frames.get(threading.main_thread().ident or 0)
                if frame is not None:
                    self.note(number, started, now, [(own_stack(frame), kind_of(frame) in (PACKAGE, WAIT))])


def begin(worker: Any, number: int) -> None:
    """Start sampling, and name the code of BLS requests from now on."""
    worker.kernel.site = _site
    _samplers[number] = WorkerSampler(worker)
    _samplers[number].thread.start()


def end(worker: Any, number: int) -> dict[str, Any]:
    """Stop sampling; return the places (file, function, its first line, line), the samples of executions, and turns."""
    sampler = _samplers.pop(number)
    if not _samplers:
        worker.kernel.site = None
    sampler.over.set()
    sampler.thread.join()
    places = [_place(code, at) for code, at in sampler.places]
    samples = [[*key, *counts] for key, counts in sampler.sampled.items()]
    return {"places": places, "samples": samples, "turns": sampler.turns.ns}


@lru_cache(10_000)
def _place(code: Any, at: int) -> list[Any]:
    from dis import findlinestarts

    line = code.co_firstlineno
    for offset, number in findlinestarts(code):
        if offset > at:
            break
        line = number or line
    return [code.co_filename, getattr(code, "co_qualname", code.co_name), code.co_firstlineno, line]


def _site() -> list[Any]:
    """Return the places of the model's code that calls this function, innermost first."""
    stack = own_stack(sys._getframe(1))
    return [_place(stack[i], stack[i + 1]) for i in range(0, len(stack), 2)]
