"""The spans of a session by parent, child and execution; and their waits for the GIL. Pure.

An *execution* is one call of `execute`, for one request or a batch. Its id is the id of its first span; 0 is
the notebook. A request waited for the GIL if executions on several threads took turns with it (`LockHeld`),
or if the request did not begin although an instance was idle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bls_notebook.profiling.intervals import Cover, Interval, events, gaps, levels, minus, total
from bls_notebook.profiling.records.spans import SessionData, Span
from bls_notebook.records import grouped


def serving(span: Span) -> Interval:
    """Return the time in which a model served a request, its callees' time included; (0, 0) if none did.

    It ends with the last response: threads of a decoupled model may respond after its `execute` has returned.
    """
    return (span.started, span.ended) if span.ran else (0, 0)


def holds(span: Span) -> Interval:
    """Return the time in which a request occupied an instance; (0, 0) if it never did."""
    if not span.ran:
        return (0, 0)
    last = span.inferred if span.kind == "stream" else span.ended
    return (span.started, span.released or last)


class SpanTree:
    """The spans of a session by id, by their execution, and by the execution that sent them.

    ``members`` are the requests of each execution; a request that never ran is an execution by itself.
    ``children`` are the requests that each execution sent, in the order of sending; 0 is the notebook.
    """

    def __init__(self, session: SessionData) -> None:
        self.spans = {span.id: span for span in session.spans}
        self._ensembles = {(m.name, m.version) for m in session.models if m.scheduler == "ensemble"}
        first: dict[int, int] = {}
        execution: dict[int, int] = {}
        self._execution = execution
        for span in session.spans:
            execution[span.id] = first.setdefault(span.batch, span.id) if span.batch else span.id
        self.members = grouped((execution[span.id], span) for span in session.spans)
        self.children = grouped((execution.get(span.parent, 0), span) for span in session.spans)
        self._self_times: dict[int, list[Interval]] = {}
        self.lock_waits: list[LockWait] | None = None  # once `lock_waits` has computed them

    @staticmethod
    def of(session: SessionData) -> SpanTree:
        """Return the tree of a session, which is built once."""
        tree: SpanTree | None = getattr(session, "_tree", None)
        if tree is None:
            tree = SpanTree(session)
            object.__setattr__(session, "_tree", tree)  # the session is frozen
        return tree

    def execution(self, span: int) -> int:
        """Return the execution of the span with this id; 0 if it is not in the session."""
        return self._execution.get(span, 0)

    def is_ensemble(self, span: Span) -> bool:
        """Return whether the model of a span is an ensemble, which has no instance to wait for."""
        return (span.model, span.version) in self._ensembles

    def in_flight(self, execution: int) -> list[Interval]:
        """Return the times in which the requests that an execution sent were in flight."""
        return [(c.sent, c.ended) for c in self.children.get(execution, ())]

    def unawaited(self) -> dict[int, int]:
        """Return the calls of models for whose response nobody waits, by id, with the time since when.

        The caller cancelled its await, or it was answered itself.
        """
        out = {}
        for execution, calls in self.children.items():
            answered = max((span.ended for span in self.members[execution]), default=0) if execution else 0
            for call in calls if execution else ():
                left = min([answered, *(mark.ns for mark in call.marks if mark.kind == "abandoned")])
                if left < call.ended:
                    out[call.id] = left
        return out

    def self_time(self, execution: int) -> list[Interval]:
        """Return the self time of an execution: its model ran and none of its callees did."""
        times = self._self_times.get(execution)
        if times is None:
            begin, end = serving(self.members[execution][0])
            times = self._self_times[execution] = gaps(begin, end, self.in_flight(execution))
        return times

    def own_time(self, span: Span) -> int:
        """Return the time in which the model of a request ran and none of its callees did, ns."""
        return total(gaps(*serving(span), self.in_flight(self.execution(span.id))))

    def working_events(self) -> list[int]:
        """Return the intervals of work, which may overlap, as `events` encodes them: fast for many spans."""
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


_LEAST = 500_000  # ns: a shorter wait is a switch to another thread
_MOST_PIECES = 20_000  # of one thread's executions: beyond, adjacent intervals are joined


class LockWait(NamedTuple):
    """The times (``pieces``) in which a request took turns with the GIL or, if ``queued``, waited for it to start."""

    span: int
    pieces: Sequence[Interval]
    queued: bool


def lock_waits(session: SessionData) -> list[LockWait]:
    """Return the waits of requests for the GIL, computed once: turns of running ones, then waits before the start.

    Of queued requests, those wait for the GIL that are next for an idle instance; the others wait for them.
    """
    tree = SpanTree.of(session)
    if tree.lock_waits is None:
        tree.lock_waits = [*_turns(session, tree), *_waits(session, tree)] if session.lock else []
    return tree.lock_waits


def _turns(session: SessionData, tree: SpanTree) -> Iterator[LockWait]:
    """Yield the executions that took turns with another thread."""
    shared = grouped(
        (t, (held.begin, held.end)) for held in session.lock if len(held.threads) > 1 for t in held.threads
    )
    running: defaultdict[int, list[int]] = defaultdict(list)
    for execution, (first, *_) in tree.members.items():
        if first.thread in shared and first.ran and not tree.is_ensemble(first):
            running[first.thread].append(execution)
    turns: dict[int, list[Interval]] = {}
    for thread, executions in running.items():
        cover = Cover(shared[thread])
        count = sum(cover.count(*piece) for execution in executions for piece in tree.self_time(execution))
        if count > _MOST_PIECES:  # many coroutines share the thread
            cover = cover.joined(-(-count // _MOST_PIECES))
        for execution in executions:
            pieces = [part for piece in tree.self_time(execution) for part in cover.within(*piece)]
            if total(pieces) > _LEAST:
                turns[execution] = pieces
    yield from (LockWait(execution, turns[execution], False) for execution in tree.members if execution in turns)


def _waits(session: SessionData, tree: SpanTree) -> Iterator[LockWait]:
    """Yield the requests that waited although an instance of their model was idle."""
    counts = {
        (m.name, m.version): len(m.instances)
        for m in session.models
        if m.scheduler == "default" and m.instances and not (m.decoupled and m.is_async)
    }
    running: defaultdict[tuple[str, int], list[Span]] = defaultdict(list)
    for first, *_ in tree.members.values():
        key = first.model, first.version
        if first.ran and key in counts:
            running[key].append(first)
    waits: dict[int, list[Interval]] = {}
    for key, spans in running.items():
        spans.sort(key=lambda span: span.started)
        idle = Cover(minus([(h.begin, h.end) for h in session.lock], _full(map(holds, spans), counts[key])))
        for i, span in enumerate(spans):
            turn = spans[i - counts[key]].started if i >= counts[key] else 0
            pieces = idle.within(max(span.queued, turn), span.started) if span.queue > _LEAST else []
            if total(pieces) > _LEAST:
                waits[span.id] = pieces
    yield from (LockWait(span.id, waits[span.id], True) for span in session.spans if span.id in waits)


def _full(running: Iterable[Interval], count: int) -> list[Interval]:
    """Return the times in which all instances of a model were busy."""
    steps = levels(running)
    ends = [moment for moment, _ in steps[1:]]
    return [(begin, end) for (begin, level), end in zip(steps, ends, strict=False) if level >= count]
