"""Sessions whose truth is known: a small simulation of models, instances and queues with a clock of its own.

A model is a list of steps: a number is work (ns), `Locked` is work under a lock that all instances share, a name is a
call by `exec`, a tuple of names is a gather of `async_exec`. An answer takes no time; handing over inputs takes
`INPUT`, outputs `OUTPUT`.
"""

from __future__ import annotations

import heapq
import importlib
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partialmethod

import pytest

from bls_notebook.profiling import sync_vs_async, tuner
from bls_notebook.profiling.session import ModelSeen, Session, Span

INPUT = 1
OUTPUT = 1


class Locked(int):
    """Work (ns) that one instance at a time can do."""


Step = int | str | tuple[str, ...]


@dataclass
class Model:
    steps: Sequence[Step]
    instances: int = 1
    code: str = ""
    batch: int = 1  # requests that one execute takes at most
    idle: list[int] = field(default_factory=list)
    queue: deque[Request] = field(default_factory=deque)


@dataclass
class Request:
    id: int
    model: str
    parent: int
    kind: str
    done: Callable[[], None]
    sent: int
    queued: int = 0
    started: int = 0
    inferred: int = 0
    instance: str = ""
    batch: int = 0


class Simulation:
    """Runs a notebook's steps; `session` is what a profile would have recorded."""

    def __init__(self, models: Mapping[str, Model], notebook: Sequence[Step], after: int = 0) -> None:
        self.models = models
        for model in models.values():
            model.idle = list(range(model.instances))[::-1]
            model.queue.clear()
        self.now = self._unlocked = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._ids = itertools.count(1)
        self._batches = itertools.count(1)
        self.spans: list[Span] = []
        self._run(0, list(notebook), lambda: None)
        while self._events:
            self.now, _, call = heapq.heappop(self._events)
            call()
        self.session = Session(
            spans=tuple(sorted(self.spans, key=lambda s: (s.sent, s.id))),
            models=tuple(
                ModelSeen(n, instances=tuple(f"{n}_{i}" for i in range(m.instances)), code=m.code)
                for n, m in models.items()
            ),
            wall=self.now + after,
        )

    def _later(self, delay: int, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._order), call))

    def _run(self, span: int, steps: list[Step], done: Callable[[], None]) -> None:
        if not steps:
            done()
            return
        step, rest = steps[0], steps[1:]
        if isinstance(step, int):
            begin = max(self.now, self._unlocked) if isinstance(step, Locked) else self.now
            self._unlocked = begin + step if isinstance(step, Locked) else self._unlocked
            self._later(begin + step - self.now, lambda: self._run(span, rest, done))
            return
        names = (step,) if isinstance(step, str) else step
        left = [len(names)]

        def answered() -> None:
            left[0] -= 1
            if not left[0]:
                self._run(span, rest, done)

        for name in names:
            self._send(name, span, "sync" if isinstance(step, str) else "async", answered)

    def _send(self, name: str, parent: int, kind: str, done: Callable[[], None]) -> None:
        request = Request(next(self._ids), name, parent, kind, done, self.now)

        def queued() -> None:
            request.queued = self.now
            self.models[name].queue.append(request)
            self._later(0, lambda: self._serve(name))  # those that come at the same time may share a batch

        self._later(INPUT, queued)

    def _serve(self, name: str) -> None:
        model = self.models[name]
        while model.idle and model.queue:
            instance = model.idle.pop()
            batch = [model.queue.popleft() for _ in range(min(model.batch, len(model.queue)))]
            number = next(self._batches) if len(batch) > 1 else 0
            for request in batch:
                request.started, request.instance = self.now, f"{name}_{instance}"
                request.batch = number

            def inferred(batch: list[Request] = batch, instance: int = instance) -> None:
                for request in batch:
                    request.inferred = self.now
                self._later(OUTPUT, lambda: self._ended(batch, instance))

            self._run(min(r.id for r in batch), list(model.steps), inferred)

    def _ended(self, batch: list[Request], instance: int) -> None:
        for r in batch:
            self.spans.append(
                Span(
                    r.id, r.model, parent=r.parent, instance=r.instance, kind=r.kind, batch=r.batch,
                    sent=r.sent, queued=r.queued, started=r.started, inferred=r.inferred, ended=self.now,
                    released=self.now, responses=1,
                )
            )  # fmt: skip
        name = batch[0].model
        self.models[name].idle.append(instance)
        self._serve(name)
        for r in batch:
            r.done()


def session(models: Mapping[str, Model], *notebook: Step, after: int = 0) -> Session:
    return Simulation(models, notebook, after).session


def simulate_times(monkeypatch: pytest.MonkeyPatch, models: Mapping[str, Model]) -> None:
    """Let `compare` and `tune` send their requests, but see the times of these models with as many instances."""
    real = sync_vs_async.Workload

    class Simulated(real):
        def run(self, together: bool) -> Session:
            (real.gathered if together else real.sequential)(self)
            groups = {name: self.repository.config(name).instance_group for name in models}
            now = {name: replace(m, instances=sum(g.count for g in groups[name])) for name, m in models.items()}
            names = (self.model,) * self.count
            found = session(now, *((names,) if together else names))
            return replace(found, name=self._last.name, cpu=0, cpu_waited=0)

        sequential = partialmethod(run, False)  # type: ignore[assignment]
        gathered = partialmethod(run, True)  # type: ignore[assignment]

    importlib.import_module("bls_notebook.profiling.dependences.counterfactual")  # it would keep the changed class
    for module in sync_vs_async, tuner:  # imported before, for the same reason
        monkeypatch.setattr(module, "Workload", Simulated)
    monkeypatch.setattr(sync_vs_async, "gil_share_of", lambda run: 0.0)
