"""Simulate the queues of recorded requests, to predict their time with other instance counts. Pure.

A `Recipe` is a recorded request: its own work, the requests that it sent, and the answers that each of them
waited for. The simulation knows instances, queues and batches; processors and the GIL bound its result from below
(`verdict`).
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from statistics import median
from typing import NamedTuple

from bls_notebook.profiling.records.spans import ModelSeen, SessionData, Span
from bls_notebook.records import grouped

from .span_tree import SpanTree

ModelKey = tuple[str, int]
"""A model's name and version."""
UNLIMITED = 1 << 30


class Queued(NamedTuple):
    """A request that waits for an instance, with its rows, the time it joined the queue, and its callback."""

    recipe: Recipe
    rows: int
    since: int
    done: Callable[[], None]
    key: None = None  # all may share a batch


class Batcher(NamedTuple):
    """The rules by which a model forms batches.

    ``form`` gets the queue and the time (ns); it returns the number of requests to run now, and the time to
    call it again if there are none. ``time`` returns the time of an `execute` (ns) for the rows of its batch; a
    single request takes its own time. ``most`` is the largest number of requests in a batch, 0 if unknown.
    """

    form: Callable[[Sequence[Queued], int], tuple[int, int | None]]
    time: Callable[[int], int]
    most: int = 0

    @staticmethod
    def greedy(most: int, duration: int, delay: int) -> Batcher:
        """Return a batcher that runs up to `most` requests, or fewer once the first has waited `delay` ns."""

        def form(queue: Sequence[Queued], now: int) -> tuple[int, int | None]:
            until = queue[0].since + delay + 1  # a request that arrives at the end belongs to the batch
            return (0, until) if len(queue) < most and now < until else (min(most, len(queue)), None)

        return Batcher(form, lambda rows: duration, most)


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that an `execute` sent: ``gap`` ns of own work after the answers that it ``waited`` for."""

    recipe: Recipe
    waited: tuple[int, ...] = ()
    gap: int = 0


@dataclass(frozen=True, slots=True)
class Recipe:
    """A request without its waits: receive inputs, run `execute` with the calls it sends, return outputs (ns)."""

    model: ModelKey
    before: int = 0
    sent: tuple[Sent, ...] = ()
    waited: tuple[int, ...] = ()
    gap: int = 0
    after: int = 0
    ran: bool = True
    rows: int = 1


def key_of(of: Span | ModelSeen) -> ModelKey:
    """Return the name and version of a model, or of a span's model."""
    return (of.model if isinstance(of, Span) else of.name, of.version)


def recipes(session: SessionData) -> tuple[Recipe, ...]:
    """Return the recipe of each request of the notebook, in the order of sending."""
    tree = SpanTree.of(session)

    def recipe(span: Span) -> Recipe:
        if not span.ran:
            return Recipe(key_of(span), span.duration, ran=False)
        children = tree.children.get(span.id, ())
        answers = _Answers(children, span.started)
        sent = [Sent(recipe(child), *answers.before(child.sent)) for child in children]
        # A decoupled model may send responses after its `execute` has returned.
        end = span.ended if span.kind == "stream" else span.inferred
        waited, gap = answers.before(end)
        return Recipe(key_of(span), span.compute_input, tuple(sent), waited, gap, span.ended - end, rows=span.rows)

    return tuple(recipe(span) for span in tree.children.get(0, ()))


class _Answers:
    """The times of the answers to the requests that an `execute` sent."""

    def __init__(self, children: Sequence[Span], started: int) -> None:
        self._started = started
        self._order = sorted(range(len(children)), key=lambda i: (children[i].ended, children[i].sent))
        self._sent = [children[i].sent for i in self._order]
        self._ended = [children[i].ended for i in self._order]
        self._latest = list(accumulate(self._sent, max))

    def before(self, moment: int) -> tuple[tuple[int, ...], int]:
        """Return the answers that had arrived by a moment, and the time since the last one (ns).

        An answer that a later one of them had waited for is left out: in a chain of a thousand calls, each call
        then waits for the one before only.
        """
        known = self._until(moment, len(self._order))
        if not known:
            return (), max(0, moment - self._started)
        first = self._until(self._latest[known - 1], known)
        gap = moment - max(self._ended[known - 1], self._started)
        return tuple(sorted(self._order[first:known])), max(0, gap)

    def _until(self, moment: int, most: int) -> int:
        """Count the answers up to a moment, to requests that were sent before it."""
        count = bisect_right(self._ended, moment, 0, most)
        while count and self._sent[count - 1] >= moment:  # sent and answered at this very moment
            count -= 1
        return count


def capacities(session: SessionData, serial: Collection[ModelKey] = ()) -> dict[ModelKey, int]:
    """Return the number of requests that each model serves at once.

    `serial` models block their event loop, so each instance serves one request, although requests could share it.
    """
    out = {}
    for model in session.models:
        shares = model.decoupled and model.is_async and key_of(model) not in serial
        free = shares or model.scheduler == "ensemble" or not model.instances
        out[key_of(model)] = UNLIMITED if free else len(model.instances)
    return out


def replay(
    requests: Sequence[Recipe],
    capacity: Mapping[ModelKey, int],
    batchers: Mapping[ModelKey, Batcher] = {},
    sent: Sequence[int] = (),
) -> int:
    """Return the simulated time of the last answer, ns.

    Each model serves its `capacity` of requests at once; for models with a batcher, a batch counts as one. Requests
    are `sent` at these times (ns), by default all at 0.
    """
    return _Replay(capacity, batchers).run(requests, sent)


def batches_seen(session: SessionData) -> dict[ModelKey, Batcher]:
    """Return the observed batching of the models that served several requests with one `execute`.

    A model waits as long for a batch to fill as it did while all of its instances were free.
    """
    executions = grouped((key_of(m[0]), m) for m in SpanTree.of(session).members.values() if m[0].ran)
    observed = {}
    for key, every in executions.items():
        batches = [members for members in every if len(members) > 1]
        if not batches:
            continue
        took = round(median(max(m.ended for m in members) - members[0].started for members in batches))
        first = min(every, key=lambda members: members[0].started)  # all instances were free
        delay = first[0].started - min(m.queued for m in first)
        observed[key] = Batcher.greedy(max(map(len, batches)), took, max(0, delay))
    return observed


def is_stuck(requests: Sequence[Recipe], capacity: Mapping[ModelKey, int]) -> bool:
    """Whether requests would deadlock, such as requests to a model that calls itself."""
    run = _Replay(capacity, {})
    run.run(requests, ())
    return run.unanswered > 0


class _Replay:
    def __init__(self, capacity: Mapping[ModelKey, int], batchers: Mapping[ModelKey, Batcher]) -> None:
        self._capacity, self._batchers = capacity, batchers
        self._free: dict[ModelKey, int] = {}  # instances without work
        self._queues: dict[ModelKey, deque[Queued]] = {}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._now = 0
        self.unanswered = 0

    def run(self, requests: Sequence[Recipe], sent: Sequence[int]) -> int:
        def answered() -> None:
            self.unanswered -= 1

        self.unanswered = len(requests)
        for i, recipe in enumerate(requests):
            self._later(sent[i] if i < len(sent) else 0, lambda r=recipe: self._send(r, answered))  # type: ignore[misc]
        while self._events:
            self._now, _, call = heapq.heappop(self._events)
            call()
        return self._now

    def _later(self, delay: int, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._now + delay, next(self._order), call))

    def _send(self, recipe: Recipe, done: Callable[[], None]) -> None:
        if not recipe.ran:
            self._later(recipe.before, done)
            return

        def queued() -> None:
            self._free.setdefault(recipe.model, self._capacity.get(recipe.model, UNLIMITED))
            self._queues.setdefault(recipe.model, deque()).append(Queued(recipe, recipe.rows, self._now, done))
            self._later(0, lambda: self._serve(recipe.model))

        self._later(recipe.before, queued)

    def _serve(self, key: ModelKey) -> None:
        queue, batcher = self._queues[key], self._batchers.get(key)
        while self._free[key] and queue:
            number, again = (1, None) if batcher is None else batcher.form(queue, self._now)
            if not number:
                if again is not None:
                    self._later(max(1, again - self._now), lambda: self._serve(key))
                return
            self._free[key] -= 1
            batch = [queue.popleft() for _ in range(number)]

            def ended(batch: list[Queued] = batch) -> None:
                self._free[key] += 1
                for request in batch:
                    request.done()
                self._serve(key)

            if batcher is not None and len(batch) > 1:
                self._later(batcher.time(sum(request.rows for request in batch)), ended)
            else:
                self._execute(batch[0].recipe, ended)

    def _execute(self, recipe: Recipe, ended: Callable[[], None]) -> None:
        last = len(recipe.sent)
        waited = [*(child.waited for child in recipe.sent), recipe.waited]
        missing = [len(answers) for answers in waited]
        waiting: list[list[int]] = [[] for _ in recipe.sent]
        for i, answers in enumerate(waited):
            for answer in answers:
                waiting[answer].append(i)

        def send_next(i: int) -> None:
            if i == last:
                self._later(recipe.gap + recipe.after, ended)
            else:
                child = recipe.sent[i]
                self._later(child.gap, lambda: self._send(child.recipe, lambda: answered(i)))

        def answered(i: int) -> None:
            for j in waiting[i]:
                missing[j] -= 1
                if not missing[j]:
                    send_next(j)

        for i in range(last + 1):
            if not missing[i]:
                send_next(i)
