"""Waits of requests for Python's lock (the GIL), from the samples of a profile (`LockHeld`). Pure.

A request waited if executions on several threads took turns with the GIL, or if it was not begun although an
instance was idle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bls_notebook.profiling.records.spans import LockHeld, SessionData
from bls_notebook.records.intervals import Interval, levels, minus, total

from .span_tree import SpanTree, holds

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
    """Executions that took turns with another thread."""
    shared = [held for held in session.lock if len(held.threads) > 1]
    for execution, members in tree.members.items():
        first = members[0]
        mine = [held for held in shared if first.thread in held.threads]
        if mine and first.ran and not tree.is_ensemble(first):
            pieces = _within(tree.self_time(execution), mine)
            if total(pieces) > _LEAST:
                yield LockWait(first.id, pieces, False)


def _waits(session: SessionData, tree: SpanTree) -> Iterator[LockWait]:
    """Requests that waited although an instance of their model was idle."""
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
    """When all instances of a model were at work."""
    steps = levels(running)
    ends = [moment for moment, _ in steps[1:]]
    return [(begin, end) for (begin, level), end in zip(steps, ends, strict=False) if level >= count]


def _within(pieces: Iterable[Interval], held: Iterable[LockHeld]) -> list[Interval]:
    """The parts of pieces in which the lock was held."""
    pieces = list(pieces)
    return minus(pieces, minus(pieces, [(each.begin, each.end) for each in held]))
