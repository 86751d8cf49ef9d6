"""`WorkerSampler`: samples the executions of a model in a process. A worker runs this module; its Python may be 3.8.

The kernel adds the result to the samples of its own `StackSampler`. Samples have no times, only the time between two,
so the clocks of worker and kernel need not agree.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from functools import lru_cache
from time import perf_counter_ns
from typing import Any

from bls_notebook.profiling.gil_turns import GilTurns
from bls_notebook.profiling.own_code import PACKAGE, WAIT, kind_of, own_stack
from bls_notebook.profiling.stack_samples import PAUSE, SHARE, StackSamples, shorter_turns, stacks_of_task

_samplers: dict[int, WorkerSampler] = {}  # by the kernel's numbers


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
        shorter_turns(self, True)
        try:
            self._sample_until_over()
        finally:
            shorter_turns(self, False)

    def _sample_until_over(self) -> None:
        due = 0
        for _ in self.turns.samples(self.over, PAUSE):
            if self.full:
                break
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
    return {"places": places, "samples": samples, "turns": sampler.turns.ns()}


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
