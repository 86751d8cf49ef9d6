"""`StackSampler`: the lines of model code at which threads and coroutines are, sampled while a model runs.

Guarantee: threads are inspected, never stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from itertools import islice
from types import CodeType, FrameType, TracebackType
from typing import Any

from bls_notebook.engine import HOME, Instance, LoadedModel, ModelHome, no_collection, walk_back
from bls_notebook.profiling.code_lines import CodeLine, line_of

from .records.comparison import LoopSeen

_STACK_PAUSE = 0.002  # seconds between two samples
_FRAMES = 40  # the innermost frames that are searched


class StackSampler:
    """Samples the lines of model code that threads run, and at which coroutines await."""

    def __init__(self, models: Collection[LoadedModel]) -> None:
        self._models = {model.name: model for model in models}
        self._seen: defaultdict[str, Counter[tuple[CodeType, int]]] = defaultdict(Counter)
        self._loops: Counter[LoadedModel] = Counter()  # samples in which an event loop had requests
        self._blocked: Counter[LoadedModel] = Counter()  # of these, samples in which it ran the model's code
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
                for frame in threads.values():
                    self._note(frame)
                for model in self._models.values():
                    for instance in model.instances:
                        if instance.loop_thread:
                            self._look_at_loop(model, instance, threads.get(instance.loop_thread))

    def _look_at_loop(self, model: LoadedModel, instance: Instance, running: FrameType | None) -> None:
        executions = []
        with contextlib.suppress(RuntimeError):  # the collection changed during the copy
            executions = list(instance.loop.executions)
        self._loops[model] += bool(executions)
        self._blocked[model] += bool(executions) and running is not None
        for execution in executions:
            if running is None and execution.task is not None:
                for task in islice(_waiting(execution.task), _FRAMES):
                    self._note(_inmost(reversed([*_awaiting(task.get_coro())])))

    def _note(self, frame: FrameType | None) -> None:
        if frame is not None:
            self._seen[dict.__getitem__(frame.f_globals, HOME).model][frame.f_code, frame.f_lasti] += 1

    def line(self, model: str) -> CodeLine | None:
        """Return the line of a model in most of its samples; None without samples."""
        if not self._seen[model]:
            return None
        ((code, last), _), *_ = self._seen[model].most_common(1)
        return line_of((code, last, model))

    def loops(self) -> tuple[LoopSeen, ...]:
        """Return the fraction of the time with requests in which each event loop ran the model's own code."""
        return tuple(
            LoopSeen(model.name, model.version, self._blocked[model] / samples)
            for model, samples in self._loops.items()
            if samples
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
        waiter = todo.pop()
        if waiter in seen:
            continue
        seen.add(waiter)
        awaited = getattr(waiter, "_fut_waiter", None)
        futures = getattr(awaited, "_children", None) or [awaited]  # of asyncio.gather
        inner = [f for f in futures if isinstance(f, asyncio.Task) and not f.done()]
        todo += inner
        if not inner:
            yield waiter


def _awaiting(coroutine: object) -> Iterator[FrameType]:
    """Yield the frames of a coroutine and of the coroutines that it awaits, outermost first."""
    for _ in range(_FRAMES):
        frame = getattr(coroutine, "cr_frame", None)
        if frame is None:
            return
        yield frame
        coroutine = getattr(coroutine, "cr_await", None)
