"""`StackSampler`: the lines at which the executions of a profile are, sampled while models run.

Guarantees: threads are inspected, never stopped. Sampling takes at most a fiftieth of the time. A sample stands for the
time around it, so a late one, as on a busy machine or behind a thread that holds the GIL, counts more.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any, NamedTuple

from bls_notebook.engine import Instance, in_memory, no_collection

from .own_code import PACKAGE, WAIT, awaited_tasks, awaiting_stack, kind_of, own_stack
from .request_log import Log, Placed, Ran, entries
from .span_recorder import running_log

_PAUSE = 0.003  # seconds between two samples, at least
_SHARE = 50  # the pause is at least so many times as long as the sample before it took
_TASKS = 40  # awaiting tasks of one execution that are sampled
_MOST = 100_000  # different stacks of executions that are kept

Stack = tuple[int, ...]  # numbers of places, outermost first


class Sampled(NamedTuple):
    """An execution by the number of its first request, its stack, and whether its code waited."""

    number: int
    stack: Stack
    waits: bool


class StackSampler:
    """Samples the executions that a log reports, from `start` until `stop`, or until the recording ends."""

    def __init__(self, log: Log) -> None:
        self.places: list[tuple[CodeType, int]] = []  # code and line; keeps the code alive, so that ids are not reused
        self.sampled: dict[Sampled, list[int]] = {}  # number of samples, and ns
        self.full = 0  # when there was no more room
        self._known: dict[tuple[int, int], int] = {}
        self._log = log
        self._placed, self._ran = len(log.placed), len(log.ran)
        self._running: dict[int, Placed] = {}
        self._before: dict[int, tuple[int, list[Sampled]]] = {}  # time and places of the previous sample
        self._over = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._sample, name="bls-stack-sampler", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def _sample(self) -> None:
        pause = _PAUSE
        while not self._over.wait(pause) and running_log() is self._log and not self.full:
            begun = perf_counter_ns()
            self._follow()
            if self._running:
                with no_collection():
                    self._look(begun, sys._current_frames())
            pause = max(_PAUSE, _SHARE * (perf_counter_ns() - begun) / 1e9)

    def _follow(self) -> None:
        """Read from the log which executions have begun and ended."""
        log = self._log
        ran = list(entries(Ran, log.ran, self._ran))  # first: each of these has been placed
        placed = list(entries(Placed, log.placed, self._placed))
        self._ran += len(ran) * len(Ran._fields)
        self._placed += len(placed) * len(Placed._fields)
        for entry in placed:
            if entry.batch in (0, entry.number) and entry.place.execute is not None:
                self._running[entry.number] = entry
        for end in ran:
            begun = self._running.get(end.number)
            if begun is not None and begun.started <= end.inferred:
                del self._running[end.number]
                self._before.pop(end.number, None)

    def _look(self, now: int, frames: dict[int, FrameType]) -> None:
        for number, placed in list(self._running.items()):
            if not placed.place.model.is_async:
                frame = frames.get(placed.thread)
                if frame is not None:
                    waits = kind_of(frame) in (PACKAGE, WAIT)
                    self._note(number, placed.started, now, [(own_stack(frame), waits)])
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
                stacks = [
                    (_stack_of(path, running if path[-1] is current else None), path[-1] is not current)
                    for path in islice(awaited_tasks(execution.task), _TASKS)
                ]
                self._note(number, self._running[number].started, now, stacks)

    def _note(self, number: int, started: int, now: int, stacks: Sequence[tuple[list[Any], bool]]) -> None:
        """Record a sample of an execution; half of the time since its previous sample is that one's."""
        places = [Sampled(number, tuple(self._numbers(stack)), waits) for stack, waits in stacks]
        begin, previous = self._before.get(number, (started, places))
        for each, count in (previous, 0), (places, 1):
            for key in each:
                counts = self.sampled.setdefault(key, [0, 0])
                counts[0] += count
                counts[1] += max(0, now - begin) // (2 * len(each))
        self._before[number] = now, places
        if len(self.sampled) >= _MOST:
            self.full = now

    def _numbers(self, stack: list[Any]) -> Iterator[int]:
        """Yield the numbers of the places of a stack, outermost first."""
        for i in range(len(stack) - 2, -1, -2):
            code, offset = stack[i], stack[i + 1]
            key = id(code), offset
            number = self._known.get(key)
            if number is None:
                number = self._known[key] = len(self.places)
                self.places.append((code, offset))
            yield number


def _stack_of(path: Iterable[asyncio.Task[Any]], running: list[Any] | None) -> list[Any]:
    """Return the stack through tasks that await each other; the last one may be `running`."""
    *outer, last = path
    stack = awaiting_stack(last) if running is None else running
    for task in reversed(outer):
        stack = stack + awaiting_stack(task)
    return stack
