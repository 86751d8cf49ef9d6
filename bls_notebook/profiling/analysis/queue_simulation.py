"""Simulate the queues of recorded requests, to predict their time with other instance counts. Pure.

A `Recipe` is a recorded request: its own work, the requests that it sent, and the answers that each of them
waited for. The simulation knows instances, queues, batches and, with the needs of the models' `Work`, that Python
code takes turns with the GIL, and that code which computes waits for a processor.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from bls_notebook.profiling.records.spans import ModelSeen, SessionData, Span
from bls_notebook.records import grouped

from .batch_calls import AS_ONE, GATHERED, ONE_BY_ONE, calls_of_requests
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
    call it again if there are none. A batch is served as one, by one of the recorded ``wholes`` or in the ``time`` (ns)
    for its rows; or its requests are simulated, one by one or gathered (``way``), by the recorded ``parts`` of a
    batch if there are any. With ``in_loop``, gathered requests do their own work one after the other. A single
    request takes its own time. ``most`` is the largest number of requests in a batch, 0 if unknown.
    """

    form: Callable[[Sequence[Queued], int], tuple[int, int | None]]
    time: Callable[[int], int]
    most: int = 0
    way: str = AS_ONE
    wholes: tuple[tuple[int, Recipe], ...] = ()
    parts: tuple[Recipe, ...] = ()
    in_loop: bool = False

    def whole(self, number: int) -> Recipe | None:
        """Return the recorded `execute` with calls whose number of requests is nearest; None without calls."""
        return min(self.wholes, key=lambda whole: abs(whole[0] - number), default=(0, None))[1]

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
    """A request without its waits: receive inputs, run `execute` with the calls it sends, return outputs (ns).

    ``released`` are the answers and the own work after which a decoupled model's `execute` returns, which makes its
    instance idle; None: with the last response. Requests of a ``sequence`` run one after the other.
    """

    model: ModelKey
    before: int = 0
    sent: tuple[Sent, ...] = ()
    waited: tuple[int, ...] = ()
    gap: int = 0
    after: int = 0
    ran: bool = True
    rows: int = 1
    released: tuple[tuple[int, ...], int] | None = None
    sequence: int | str = 0


def key_of(of: Span | ModelSeen) -> ModelKey:
    """Return the name and version of a model, or of a span's model."""
    return (of.model if isinstance(of, Span) else of.name, of.version)


def recipes(session: SessionData) -> tuple[Recipe, ...]:
    """Return the recipe of each request of the notebook, in the order of sending."""
    return tuple(map(_Recipes(session).of, SpanTree.of(session).children.get(0, ())))


class _Recipes:
    """Makes the recipes of a session's requests."""

    def __init__(self, session: SessionData) -> None:
        self._tree = SpanTree.of(session)
        # An async decoupled model shares its instances anyway.
        self._early = {key_of(m) for m in session.models if m.decoupled and not m.is_async}
        self._sequenced = {key_of(m) for m in session.models if m.scheduler == "sequence_batching"}
        self._parts: dict[int, dict[int, tuple[Sequence[Span], int]]] = {}  # calls and begin of a batch's requests

    def of(self, span: Span) -> Recipe:
        if not span.ran:
            return Recipe(key_of(span), span.duration, ran=False)
        part = self._part(span)
        if part is None:
            return self.whole(span)
        calls, began = part
        end = max(call.ended for call in calls)
        if span.id == self._tree.members[self._tree.execution(span.id)][-1].id:
            end = max(end, span.inferred)  # the rest of the batch
        return self._made(span, calls, began, end, 0)

    def whole(self, span: Span) -> Recipe:
        """Return the recipe of a request, or of a batch whose first request it is."""
        # A decoupled model may send responses after its `execute` has returned.
        end = span.ended if span.kind == "stream" else span.inferred
        return self._made(span, self._tree.children.get(span.id, ()), span.started, end, span.ended - end)

    def _part(self, span: Span) -> tuple[Sequence[Span], int] | None:
        """Return the calls of a request in a batch, and when its turn began; None if they are not known apart."""
        execution = self._tree.execution(span.id)
        members = self._tree.members[execution]
        if len(members) > 1 and execution not in self._parts:
            way, parts = calls_of_requests(self._tree.children.get(execution, ()), len(members))
            ends = [span.started, *(max(call.ended for call in part) for part in parts)]
            begins = ends if way == ONE_BY_ONE else [span.started] * len(members)
            for member, part, begin in zip(members, parts, begins, strict=False):
                self._parts.setdefault(execution, {})[member.id] = part, begin
        return self._parts.get(execution, {}).get(span.id)

    def _made(self, span: Span, calls: Sequence[Span], began: int, end: int, after: int) -> Recipe:
        answers = _Answers(calls, began)
        sent = [Sent(self.of(call), *answers.before(call.sent)) for call in calls]
        is_early = key_of(span) in self._early and 0 < span.released < end
        released = answers.before(span.released) if is_early else None
        waited, gap = answers.before(end)
        return Recipe(
            key_of(span), span.compute_input, tuple(sent), waited, gap, after, rows=span.rows, released=released,
            sequence=span.correlation_id if key_of(span) in self._sequenced else 0,
        )  # fmt: skip


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


class Work(NamedTuple):
    """The needs of models' own work: a fraction of it holds the GIL (`python`), another one computes on a processor.

    With 0 `cores`, each request has a processor.
    """

    python: Mapping[ModelKey, float] = MappingProxyType({})
    computing: Mapping[ModelKey, float] = MappingProxyType({})
    cores: int = 0

    @property
    def apart(self) -> Work:
        """The needs if each instance is a process, with its own GIL."""
        return self._replace(python={})


NOT_SHARED = Work()


def replay(
    requests: Sequence[Recipe],
    capacity: Mapping[ModelKey, int],
    batchers: Mapping[ModelKey, Batcher] = {},
    sent: Sequence[int] = (),
    work: Work = NOT_SHARED,
) -> int:
    """Return the simulated time of the last answer, ns.

    Each model serves its `capacity` of requests at once; for models with a batcher, a batch counts as one. Requests
    are `sent` at these times (ns), by default all at 0. `work` has the needs of models' own work.
    """
    return _Replay(capacity, batchers, work).run(requests, sent)


def batches_seen(session: SessionData, alone: Mapping[int, Sequence[str]] = {}) -> dict[ModelKey, Batcher]:
    """Return the observed batching of the models that served several requests with one `execute`.

    A model waits as long for a batch to fill as it did while all of its instances were free. `alone` has the models
    that a request, by the id of its span, calls if it is served by itself.
    """
    tree, made = SpanTree.of(session), _Recipes(session)
    executions = grouped((key_of(m[0]), (e, m)) for e, m in tree.members.items() if m[0].ran)
    observed = {}
    for key, every in executions.items():
        batches = [(tree.children.get(e, ()), members) for e, members in every if len(members) > 1]
        if not batches:
            continue
        took = round(median(max(m.ended for m in members) - members[0].started for _, members in batches))
        _, first = min(every, key=lambda each: each[1][0].started)  # all instances were free
        delay = first[0].started - min(m.queued for m in first)
        ways = {
            calls_of_requests(calls, len(members), [alone[m.id] for m in members if m.id in alone])[0]
            for calls, members in batches
        }
        way = ways.pop() if len(ways) == 1 else AS_ONE
        wholes = [(len(members), made.whole(members[0])) for calls, members in batches if calls]
        largest = max((members for _, members in batches), key=len)
        parts = () if way == AS_ONE else tuple(map(made.of, largest))
        # A batch that waited after its last request has come was not full.
        was_full = largest[0].started - max(m.queued for m in largest) <= delay / 2
        batcher = Batcher.greedy(len(largest) + (not was_full), took, max(0, delay))
        observed[key] = batcher._replace(most=len(largest), way=way, wholes=tuple(wholes), parts=parts)
    return observed


def is_stuck(requests: Sequence[Recipe], capacity: Mapping[ModelKey, int]) -> bool:
    """Return whether requests would deadlock, such as requests to a model that calls itself."""
    run = _Replay(capacity)
    run.run(requests, ())
    return run.unanswered > 0


class _Replay:
    def __init__(
        self, capacity: Mapping[ModelKey, int], batchers: Mapping[ModelKey, Batcher] = {},
        work: Work = NOT_SHARED,
    ) -> None:  # fmt: skip
        self._capacity, self._batchers, self._work = capacity, batchers, work
        self._gil = 0  # when it is free
        self._cores = [0] * work.cores  # when each of them is free; a heap
        self._free: dict[ModelKey, int] = {}  # instances without work
        self._queues: dict[ModelKey, deque[Queued]] = {}
        self._sequences: dict[tuple[ModelKey, int | str], deque[Callable[[], None]]] = {}  # the first one runs
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._now = 0
        self.unanswered = 0

    def run(self, requests: Sequence[Recipe], sent: Sequence[int]) -> int:
        last = 0

        def answered() -> None:
            nonlocal last
            self.unanswered -= 1
            last = self._now  # timers of batches that filled before they expired end later

        self.unanswered = len(requests)
        for i, recipe in enumerate(requests):
            self._later(sent[i] if i < len(sent) else 0, lambda r=recipe: self._send(r, answered))  # type: ignore[misc]
        while self._events:
            self._now, _, call = heapq.heappop(self._events)
            call()
        return last

    def _later(self, delay: int, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._now + delay, next(self._order), call))

    def _send(self, recipe: Recipe, done: Callable[[], None]) -> None:
        if not recipe.ran:
            self._later(recipe.before, done)
            return

        sequence = self._sequences.setdefault((recipe.model, recipe.sequence), deque()) if recipe.sequence else deque()

        def answered() -> None:
            sequence.popleft()
            if sequence:
                sequence[0]()
            done()

        def queued() -> None:
            self._free.setdefault(recipe.model, self._capacity.get(recipe.model, UNLIMITED))
            self._queues.setdefault(recipe.model, deque()).append(Queued(recipe, recipe.rows, self._now, answered))
            self._later(0, lambda: self._serve(recipe.model))

        def arrived() -> None:
            sequence.append(queued)
            if len(sequence) == 1:
                queued()

        self._later(recipe.before, arrived)

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

            def released() -> None:
                self._free[key] += 1
                self._serve(key)

            def answered(batch: list[Queued] = batch) -> None:
                for request in batch:
                    request.done()

            if batcher is None or len(batch) == 1:
                self._execute(batch[0].recipe, answered, released)
            else:
                self._run_batch(batcher, batch, answered, released)

    def _run_batch(self, batcher: Batcher, batch: list[Queued], *then: Callable[[], None]) -> None:
        def over() -> None:
            for call in then:
                call()

        parts = batcher.parts
        each = [parts[i % len(parts)] if parts else request.recipe for i, request in enumerate(batch)]
        if batcher.way == ONE_BY_ONE:
            rest = each[:]

            def following() -> None:
                if rest:
                    self._execute(rest.pop(0), following)
                else:
                    over()

            following()
        elif batcher.way == GATHERED:
            left, loop = [len(batch)], [0] if batcher.in_loop else None

            def ended() -> None:
                left[0] -= 1
                if not left[0]:
                    over()

            for recipe in each:
                self._execute(recipe, ended, loop=loop)
        elif (whole := batcher.whole(len(batch))) is not None:
            self._execute(whole, over)
        else:
            self._later(batcher.time(sum(request.rows for request in batch)), over)

    def _worked(self, key: ModelKey, begin: int, ns: int) -> int:
        """Return when a model's own work ends that may begin now, and waits for the GIL and for a processor."""
        python = round(ns * self._work.python.get(key, 0.0))
        computing = max(python, round(ns * self._work.computing.get(key, 0.0)))
        if python:
            begin = max(begin, self._gil)
        if computing and self._cores:
            begin = max(begin, self._cores[0])
            heapq.heapreplace(self._cores, begin + computing)
        if python:
            self._gil = begin + python
        return begin + ns

    def _execute(
        self, recipe: Recipe, ended: Callable[[], None], released: Callable[[], None] = lambda: None,
        loop: list[int] | None = None,
    ) -> None:  # fmt: skip
        """Run one `execute`. Coroutines of a batch do their own work one after the other, in their event `loop`."""
        last = len(recipe.sent)
        waited = [*(child.waited for child in recipe.sent), recipe.waited]
        if recipe.released is not None:
            waited.append(recipe.released[0])
        missing = [len(answers) for answers in waited]
        waiting: list[list[int]] = [[] for _ in recipe.sent]
        for i, answers in enumerate(waited):
            for answer in answers:
                waiting[answer].append(i)

        def work(ns: int, then: Callable[[], None]) -> None:
            ended = self._worked(recipe.model, max([self._now, *(loop or ())]), ns)
            if loop is not None:
                loop[0] = ended
            self._later(ended - self._now, then)

        def over() -> None:
            ended()
            if recipe.released is None:
                released()

        def send_next(i: int) -> None:
            if i > last:
                self._later((recipe.released or ((), 0))[1], released)
            elif i == last:
                work(recipe.gap, lambda: self._later(recipe.after, over))
            else:
                child = recipe.sent[i]
                work(child.gap, lambda: self._send(child.recipe, lambda: answered(i)))

        def answered(i: int) -> None:
            for j in waiting[i]:
                missing[j] -= 1
                if not missing[j]:
                    send_next(j)

        for i in range(len(waited)):
            if not missing[i]:
                send_next(i)
