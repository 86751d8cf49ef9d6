"""`StackSampler`: the lines at which the executions of a profile are, sampled while models run.

Guarantees: threads are inspected, never stopped; meanwhile they take shorter turns with the GIL. Sampling takes at
most a fiftieth of the time. A sample stands for the time around it, so a late one, as on a busy machine, counts more.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from concurrent.futures import Future
from random import Random
from time import perf_counter_ns
from types import FrameType
from typing import Any

from bls_notebook.backends import ModelProcess, WorkerCode, ask, results
from bls_notebook.engine import Instance, LoadedModel, in_memory, no_collection
from bls_notebook.records import ModelSeen

from .gil_turns import EARLY, FIRST
from .own_code import PACKAGE, WAIT, kind_of, own_stack
from .request_log import Log, Placed, Ran, entries
from .resource_time import STACK_SAMPLER
from .span_recorder import running_log
from .stack_samples import PAUSE, SHARE, Sampled, StackSamples, shorter_turns, stacks_of_task

SAMPLER = (  # the code of a worker
    "bls_notebook.profiling.gil_turns", "bls_notebook.profiling.own_code", "bls_notebook.profiling.stack_samples",
    "bls_notebook.profiling.worker_sampler",
)  # fmt: skip


class StackSampler(StackSamples):
    """Samples the executions that a log reports, from `start` until `stop`, or until the recording ends."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log
        self._workers: dict[ModelProcess, None] = {}  # that sample
        self.turns: dict[int, int] = {}  # of the threads of workers with their GIL (ns), by process; -1 if unknown
        self._apart: dict[int, ModelSeen] = {}  # the models of these, by ID
        self._placed, self._ran = len(log.placed), len(log.ran)
        self._running: dict[int, Placed] = {}
        self._over = threading.Event()

    def start(self) -> None:
        results([answer for model in list(in_memory) for answer in self._start_workers(model)])
        shorter_turns(self, True)
        threading.Thread(target=self._sample, name=STACK_SAMPLER, daemon=True).start()

    def stop(self) -> None:
        self._over.set()
        shorter_turns(self, False)
        workers, self._workers = list(self._workers), {}
        answers = [ask(process, SAMPLER, "end", id(self)) for process in workers]
        for process, result in zip(workers, results(answers), strict=True):
            if result is not None:
                self._add(process, result)

    def _start_workers(self, model: LoadedModel) -> list[Future[Any]]:
        """Let the processes of a model sample; return their answers."""
        serving = [process for process in model.processes.values() if process.pid]
        if serving:
            self._apart[id(model.seen)] = model.seen
            self._workers.update(dict.fromkeys(serving))
        return [ask(process, SAMPLER, "begin", id(self)) for process in serving]

    def _add(self, process: ModelProcess, result: dict[str, Any]) -> None:
        """Add the samples of a worker, whose executions have the numbers of their calls."""
        self.turns[process.pid] = result["turns"]
        first = len(self.places)
        self.places += [(WorkerCode(file, function, line), at) for file, function, line, at in result["places"]]
        for call, stack, waits, count, ns in result["samples"]:
            number = process.upcalls.spans.get(call, 0)
            counts = self.sampled.setdefault(Sampled(number, tuple(first + i for i in stack), waits), [0, 0])
            counts[0] += count
            counts[1] += ns

    def _sample(self) -> None:
        taken, pause, chance = 0, EARLY * PAUSE, Random()
        # At random times, else requests that take as long would be seen at the same line each time.
        while not self._over.wait(pause * chance.uniform(0.5, 1.5)) and running_log() is self._log and not self.full:
            begun = perf_counter_ns()
            self._follow()
            if self._running:
                with no_collection():
                    self._look(begun, sys._current_frames())
                taken += 1
            pause = max(PAUSE * (EARLY if taken < FIRST else 1), SHARE * (perf_counter_ns() - begun) / 1e9)
        if not self._over.is_set():  # no thread ends this profile
            self.stop()

    def _follow(self) -> None:
        """Read from the log which executions have begun and ended."""
        log = self._log
        ran = list(entries(Ran, log.ran, self._ran))  # first: each of these has been placed
        placed = list(entries(Placed, log.placed, self._placed))
        self._ran += len(ran) * len(Ran._fields)
        self._placed += len(placed) * len(Placed._fields)
        for entry in placed:
            if entry.place.model.processes:
                if id(entry.place.model) not in self._apart:
                    for model in [m for m in list(in_memory) if m.seen is entry.place.model]:
                        self._start_workers(model)
            elif entry.batch in (0, entry.number) and entry.place.execute is not None:
                self._running[entry.number] = entry
        for end in ran:
            begun = self._running.get(end.number)
            if begun is not None and begun.started <= end.inferred:
                del self._running[end.number]
                self.ended(end.number)

    def _look(self, now: int, frames: dict[int, FrameType]) -> None:
        for number, placed in list(self._running.items()):
            if not placed.place.model.is_async:
                frame = frames.get(placed.thread)
                if frame is not None:
                    waits = kind_of(frame) in (PACKAGE, WAIT)
                    self.note(number, placed.started, now, [(own_stack(frame), waits)])
        if any(placed.place.model.is_async for placed in self._running.values()):
            for model in list(in_memory):
                for instance in list(model.instances) if model.seen.is_async else ():
                    if instance.loop_thread:
                        self._look_at_loop(now, instance, frames.get(instance.loop_thread))

    def _look_at_loop(self, now: int, instance: Instance, thread: FrameType | None) -> None:
        loop = instance.loop
        running = own_stack(thread)
        current = asyncio.current_task(loop.loop) if running else None
        executions = []
        with contextlib.suppress(RuntimeError):  # the collection changed during the copy
            executions = list(loop.executions)
        for execution in executions:
            number = 0 if execution.observed is None else execution.observed.span
            if number in self._running and execution.task is not None:
                stacks = stacks_of_task(execution.task, current, running)
                self.note(number, self._running[number].started, now, stacks)
