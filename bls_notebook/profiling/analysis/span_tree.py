"""The spans of a session by parent, child and execution; and their waits for the GIL. Pure.

An *execution* is one call of `execute`, for one request or a batch. Its id is that of its first span; 0 is
the notebook. A request waited for the GIL if executions on several threads took turns with it (`LockHeld`),
or if the request did not begin although an instance was idle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bls_notebook.profiling.records.spans import LockHeld, SessionData, Span
from bls_notebook.records.intervals import Interval, events, gaps, levels, minus, total


def serving(span: Span) -> Interval:
    """Return when a model worked for a request, its callees' time included; (0, 0) if none did.

    Until the last response: a decoupled model may go on, in threads, when its `execute` has returned.
    """
    return (span.started, span.ended) if span.ran else (0, 0)


def holds(span: Span) -> Interval:
    """Return when a request kept an instance from serving others; (0, 0) if it never did."""
    if not span.ran:
        return (0, 0)
    last = span.inferred if span.kind == "stream" else span.ended
    return (span.started, span.released or last)


class SpanTree:
    """The spans of a session: by id, by the execution that they are of, and by the one that sent them.

    ``members`` are the requests of each execution, and those that never ran, each as its own; ``children``
    what each execution sent, in the order of sending; 0 is the notebook.
    """

    def __init__(self, session: SessionData) -> None:
        self.spans = {span.id: span for span in session.spans}
        self._ensembles = {(m.name, m.version) for m in session.models if m.scheduler == "ensemble"}
        first: dict[int, int] = {}
        execution: dict[int, int] = {}
        self._execution = execution
        members: defaultdict[int, list[Span]] = defaultdict(list)
        for span in session.spans:
            key = first.setdefault(span.batch, span.id) if span.batch else span.id
            execution[span.id] = key
            members[key].append(span)
        children: defaultdict[int, list[Span]] = defaultdict(list)
        for span in session.spans:
            children[execution.get(span.parent, 0)].append(span)
        self.members, self.children = dict(members), dict(children)
        self._self_times: dict[int, list[Interval]] = {}

    def execution(self, span: int) -> int:
        """Return the execution that a span is of, by its id; 0 for one that is not in the session."""
        return self._execution.get(span, 0)

    def executions(self, spans: Iterable[Span]) -> set[int]:
        """Return the executions that spans of the session are of."""
        known = self._execution
        return {known[span.id] for span in spans}

    def is_ensemble(self, span: Span) -> bool:
        """Whether a span is of an ensemble, which has no instance to wait for."""
        return (span.model, span.version) in self._ensembles

    def in_flight(self, execution: int) -> list[Interval]:
        """Return when the requests that an execution sent were under way."""
        return [(c.sent, c.ended) for c in self.children.get(execution, ())]

    def self_time(self, execution: int) -> list[Interval]:
        """Return the self time of an execution: when its model ran, and none of its callees did."""
        found = self._self_times.get(execution)
        if found is None:
            begin, end = serving(self.members[execution][0])
            found = self._self_times[execution] = gaps(begin, end, self.in_flight(execution))
        return found

    def working(self) -> list[Interval]:
        """Return every piece of work, one after the other for each execution; pieces may overlap."""
        out: list[Interval] = []
        for execution, spans in self.members.items():
            out += self.self_time(execution)
            out += [(s.sent, s.queued) for s in spans if s.sent < s.queued]
        return out

    def working_events(self) -> list[int]:
        """Return the same as `events`, for `occupied`: much quicker where there are many."""
        out: list[int] = []
        add = out.append
        for execution, spans in self.members.items():
            span = spans[0]
            if self.children.get(execution):
                out += events(self.self_time(execution))
            elif span.instance and span.started < span.ended:
                add(2 * span.started + 1)
                add(2 * span.ended)
            for span in spans:
                if span.sent < span.queued:
                    add(2 * span.sent + 1)
                    add(2 * span.queued)
        return out


_LEAST = 500_000  # ns: a shorter wait is the way to a thread


class LockWait(NamedTuple):
    """Where a request waited for the lock, or took turns with it (`pieces`); ``queued``: before it ran."""

    span: int
    pieces: Sequence[Interval]
    queued: bool


def lock_waits(session: SessionData, tree: SpanTree | None = None) -> list[LockWait]:
    """Return where requests waited for Python's lock, in the order of the spans."""
    if not session.lock:
        return []
    tree = tree or SpanTree(session)
    return [*_turns(session, tree), *_waits(session, tree)]


def _turns(session: SessionData, tree: SpanTree) -> Iterator[LockWait]:
    """Return executions that took turns with another thread."""
    shared = [held for held in session.lock if len(held.threads) > 1]
    for execution, members in tree.members.items():
        first = members[0]
        mine = [held for held in shared if first.thread in held.threads]
        if mine and first.ran and not tree.is_ensemble(first):
            pieces = _within(tree.self_time(execution), mine)
            if total(pieces) > _LEAST:
                yield LockWait(first.id, pieces, False)


def _waits(session: SessionData, tree: SpanTree) -> Iterator[LockWait]:
    """Return requests that waited although an instance of their model was idle."""
    counts = {
        (m.name, m.version): len(m.instances)
        for m in session.models
        if m.scheduler == "default" and not (m.decoupled and m.is_async)
    }
    running: defaultdict[tuple[str, int], list[Interval]] = defaultdict(list)
    for first, *_ in tree.members.values():
        running[first.model, first.version].append(holds(first))
    full = {key: _full(each, counts[key]) for key, each in running.items() if counts.get(key)}
    for span in session.spans:
        key = span.model, span.version
        if span.ran and span.queue > _LEAST and counts.get(key):
            pieces = _within(minus([(span.queued, span.started)], full[key]), session.lock)
            if total(pieces) > _LEAST:
                yield LockWait(span.id, pieces, True)


def _full(running: list[Interval], count: int) -> list[Interval]:
    """Return when all instances of a model were busy."""
    steps = levels(running)
    ends = [moment for moment, _ in steps[1:]]
    return [(begin, end) for (begin, level), end in zip(steps, ends, strict=False) if level >= count]


def _within(pieces: Iterable[Interval], held: Iterable[LockHeld]) -> list[Interval]:
    """Return the parts of intervals in which the GIL was held."""
    pieces = list(pieces)
    return minus(pieces, minus(pieces, [(each.begin, each.end) for each in held]))
