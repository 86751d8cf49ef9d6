"""Requests seen one at a time, replayed all at once with any instance counts: how long would it take?

A recipe is a request with its own work and the requests that it sent, each with what it waited for. The
replay knows instances, queues and batches, and no limit of processors: `verdict` adds that one.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count

from bls_notebook.observe.analysis.span_tree import SpanTree
from bls_notebook.observe.records.profiles.spans import ModelSeen, SessionData, Span

Key = tuple[str, int]
"""A model's name and version."""
Batches = Mapping[Key, tuple[int, int]]
"""Of a model that serves batches: how many requests at most, and how long its `execute` takes (ns)."""
UNLIMITED = 1 << 30


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that an `execute` sent: ``gap`` ns of own work after the answers that it ``waited`` for."""

    recipe: Recipe
    waited: tuple[int, ...] = ()
    gap: int = 0


@dataclass(frozen=True, slots=True)
class Recipe:
    """A request without its waits: hand over inputs, `execute` with what it sends, hand over outputs. ns.

    Where there are ``steps`` (`Program`), these say when a request is sent and when its answer is needed;
    what a request ``waited`` for are then others whose outputs are among its inputs.
    """

    model: Key
    before: int = 0
    sent: tuple[Sent, ...] = ()
    waited: tuple[int, ...] = ()
    gap: int = 0
    after: int = 0
    ran: bool = True
    steps: tuple[tuple[int, int, int], ...] = ()


def key_of(what: Span | ModelSeen) -> Key:
    """Return name and version of the model of a span, or of a model."""
    return (what.model if isinstance(what, Span) else what.name, what.version)


def recipes(session: SessionData) -> tuple[Recipe, ...]:
    """Return the recipe of each request of the notebook, in the order of sending."""
    tree = SpanTree(session)

    def recipe(span: Span) -> Recipe:
        if not span.ran:
            return Recipe(key_of(span), span.duration, ran=False)
        children = tree.children.get(span.id, ())
        answers = _Answers(children, span.started)
        sent = [Sent(recipe(child), *answers.before(child.sent)) for child in children]
        # A decoupled model may go on when its `execute` has returned.
        end = span.ended if span.kind == "stream" else span.inferred
        waited, gap = answers.before(end)
        return Recipe(key_of(span), span.compute_input, tuple(sent), waited, gap, span.ended - end)

    return tuple(recipe(span) for span in tree.children.get(0, ()))


class _Answers:
    """When the answers came to the requests that an `execute` sent."""

    def __init__(self, children: Sequence[Span], started: int) -> None:
        self._started = started
        self._order = sorted(range(len(children)), key=lambda i: (children[i].ended, children[i].sent))
        self._sent = [children[i].sent for i in self._order]
        self._ended = [children[i].ended for i in self._order]
        self._latest = list(accumulate(self._sent, max))

    def before(self, moment: int) -> tuple[tuple[int, ...], int]:
        """Return which answers had come by a moment, and how long ago the last of them did.

        Not those for which one of the others had waited: of a thousand calls one after the other, each
        waits for the one before.
        """
        known = self._until(moment, len(self._order))
        if not known:
            return (), max(0, moment - self._started)
        first = self._until(self._latest[known - 1], known)
        gap = moment - max(self._ended[known - 1], self._started)
        return tuple(sorted(self._order[first:known])), max(0, gap)

    def _until(self, moment: int, most: int) -> int:
        """How many of the answers had come, to requests that were sent before."""
        count = bisect_right(self._ended, moment, 0, most)
        while count and self._sent[count - 1] >= moment:  # answered at once, just now
            count -= 1
        return count


def capacities(session: SessionData, serial: Collection[Key] = ()) -> dict[Key, int]:
    """Return how many requests each model serves at once.

    The `serial` ones have an event loop that was seen to be blocked: one request an instance, although they
    could share it.
    """
    out = {}
    for model in session.models:
        shares = model.decoupled and model.is_async and key_of(model) not in serial
        free = shares or model.scheduler == "ensemble" or not model.instances
        out[key_of(model)] = UNLIMITED if free else len(model.instances)
    return out


def replay(
    requests: Sequence[Recipe],
    capacity: Mapping[Key, int],
    *,
    batches: Batches | None = None,
    sent: Sequence[int] = (),
) -> int:
    """Return when the last of several requests would be answered, ns.

    A model serves as many requests at once as its `capacity`; a batch counts once, for models that serve
    `batches`. Each is `sent` when that says so, ns, or at once.
    """
    return _Replay(capacity, batches or {}).run(requests, sent)


def is_stuck(requests: Sequence[Recipe], capacity: Mapping[Key, int]) -> bool:
    """Return whether requests would wait for each other for ever: a model that calls itself, say."""
    run = _Replay(capacity, {})
    run.run(requests, ())
    return run.unanswered > 0


@dataclass
class _Model:
    free: int
    queue: deque[tuple[Recipe, Callable[[], None]]] = field(default_factory=deque)


class _Replay:
    def __init__(self, capacity: Mapping[Key, int], batches: Batches) -> None:
        self._capacity = capacity
        self._batches = batches
        self._models: dict[Key, _Model] = {}
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
            if recipe.model not in self._models:
                self._models[recipe.model] = _Model(self._capacity.get(recipe.model, UNLIMITED))
            self._models[recipe.model].queue.append((recipe, done))
            self._later(0, lambda: self._serve(recipe.model))

        self._later(recipe.before, queued)

    def _serve(self, key: Key) -> None:
        model = self._models[key]
        most, duration = self._batches.get(key, (1, 0))
        while model.free and model.queue:
            model.free -= 1
            batch = [model.queue.popleft() for _ in range(min(most, len(model.queue)))]

            def ended(batch: list[tuple[Recipe, Callable[[], None]]] = batch) -> None:
                model.free += 1
                for _, done in batch:
                    done()
                self._serve(key)

            if len(batch) > 1:
                self._later(duration, ended)
            else:
                self._execute(batch[0][0], ended)

    def _execute(self, recipe: Recipe, ended: Callable[[], None]) -> None:
        if recipe.steps:
            self._program(recipe, ended)
            return
        last = len(recipe.sent)
        waited = [*(child.waited for child in recipe.sent), recipe.waited]
        missing = [len(answers) for answers in waited]
        waiting: list[list[int]] = [[] for _ in recipe.sent]
        for i, answers in enumerate(waited):
            for answer in answers:
                waiting[answer].append(i)

        def go_on(i: int) -> None:
            if i == last:
                self._later(recipe.gap + recipe.after, ended)
            else:
                child = recipe.sent[i]
                self._later(child.gap, lambda: self._send(child.recipe, lambda: answered(i)))

        def answered(i: int) -> None:
            for j in waiting[i]:
                missing[j] -= 1
                if not missing[j]:
                    go_on(j)

        for i in range(last + 1):
            if not missing[i]:
                go_on(i)

    def _program(self, recipe: Recipe, ended: Callable[[], None]) -> None:
        """Go through the steps; it is over when all that was sent has been answered."""
        answered: set[int] = set()
        told: dict[int, list[Callable[[], None]]] = {}

        def when(call: int, then: Callable[[], None]) -> None:
            if call in answered:
                then()
            else:
                told.setdefault(call, []).append(then)

        def send(call: int) -> None:
            missing = [n for n in recipe.sent[call].waited if n not in answered]
            if missing:
                when(missing[0], lambda: send(call))
            else:
                self._send(recipe.sent[call].recipe, lambda: done(call))

        def done(call: int) -> None:
            answered.add(call)
            for then in told.pop(call, ()):
                then()

        def after(step: int) -> None:
            if step < len(recipe.steps):
                self._later(recipe.steps[step][0], lambda: at(step))
            else:
                self._later(recipe.gap, lambda: settle(0))

        def at(step: int) -> None:
            _, call, needed = recipe.steps[step]
            if needed:
                when(call, lambda: after(step + 1))
            else:
                send(call)
                after(step + 1)

        def settle(call: int) -> None:
            while call < len(recipe.sent) and call in answered:
                call += 1
            if call < len(recipe.sent):
                when(call, lambda: settle(call + 1))
            else:
                self._later(recipe.after, ended)

        after(0)
