"""The call graph of a session: its models and the calls between them, with their times. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bls_notebook.profiling.intervals import Interval, total
from bls_notebook.profiling.records.spans import NOTEBOOK, ModelSeen, SessionData, Span
from bls_notebook.records import Record, grouped
from bls_notebook.repository import reached

from .span_tree import SpanTree, serving


@dataclass(frozen=True, slots=True, repr=False)
class CallGraphNode(Record):
    """A model version; ``name`` has ``/version`` appended if the session has several versions of the model.

    Times are ns. The time in `execute` is ``self_time``, its own work, plus ``waiting``, while a callee was in
    flight; an execution counts once, whatever its batch. ``queued`` is the time that requests to it waited.
    ``stub``: a stub answered instead of it; ``remote``: a server elsewhere runs it.
    """

    name: str
    calls: int = 0
    executions: int = 0
    self_time: int = 0
    waiting: int = 0
    queued: int = 0
    errors: int = 0
    ensemble: bool = False
    cycle: bool = False
    stub: bool = False
    remote: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Edge(Record):
    """All calls from one model to another; an empty ``caller`` is the notebook.

    ``parallel`` of the ``calls`` overlapped another call of the same execution of the caller. The time of the
    calls (``duration``, ns) is the sum of ``queued``, ``self_time`` (the callee's work, and passing inputs and
    outputs) and ``waiting`` for its own callees. ``cycle`` says that the edge is part of a cycle.
    """

    caller: str
    callee: str
    calls: int = 0
    parallel: int = 0
    sync: int = 0
    asynchronous: int = 0
    stream: int = 0
    ensemble: int = 0
    duration: int = 0
    queued: int = 0
    self_time: int = 0
    waiting: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    crossings: int = 0
    errors: int = 0
    cached: int = 0
    cycle: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class CallGraph(Record):
    """Models and their calls; ``sender`` is the name to show for an empty caller."""

    nodes: tuple[CallGraphNode, ...] = ()
    edges: tuple[Edge, ...] = ()
    sender: str = NOTEBOOK


def label(span: Span, several: frozenset[str]) -> str:
    """Return the name of a span's model, with its version if the model is one of ``several`` versions."""
    return f"{span.model}/{span.version}" if span.model in several else span.model


def of_several_versions(spans: Iterable[Span]) -> frozenset[str]:
    """Return the names of the models with spans of several versions."""
    counts = Counter(name for name, _ in {(s.model, s.version) for s in spans})
    return frozenset(name for name, versions in counts.items() if versions > 1)


def call_graph(session: SessionData) -> CallGraph:
    tree = SpanTree.of(session)
    several = of_several_versions(session.spans)
    edges: defaultdict[tuple[str, str], list[Span]] = defaultdict(list)
    parallel: set[int] = set()
    for execution, children in tree.children.items():
        caller = label(tree.spans[execution], several) if execution else ""
        beside = overlapping([(c.sent, c.ended) for c in children])
        parallel.update(c.id for c, is_so in zip(children, beside, strict=True) if is_so)
        for child in children:
            edges[caller, label(child, several)].append(child)
    cycles = _on_cycles(edges)
    seen = {(model.name, model.version): model for model in session.models}
    nodes = grouped((label(span, several), span) for span in session.spans)
    return CallGraph(
        tuple(
            _node(n, spans, tree, n in cycles, seen.get((spans[0].model, spans[0].version)))
            for n, spans in sorted(nodes.items())
        ),
        tuple(
            _edge(caller, callee, calls, parallel, tree, caller in cycles and callee in cycles[caller])
            for (caller, callee), calls in sorted(edges.items())
        ),
        session.sender,
    )


def _node(name: str, spans: list[Span], tree: SpanTree, cycle: bool, seen: ModelSeen | None) -> CallGraphNode:
    executions = {tree.execution(s.id) for s in spans if s.ran}
    served = sum(total([serving(tree.members[e][0])]) for e in executions)
    self_time = sum(total(tree.self_time(e)) for e in executions)
    return CallGraphNode(
        name,
        len(spans),
        len(executions),
        self_time,
        served - self_time,
        sum(s.queue for s in spans),
        sum(s.state == "error" for s in spans),
        tree.is_ensemble(spans[0]),
        cycle,
        seen is not None and seen.stub,
        seen is not None and bool(seen.remote),
    )


def _edge(caller: str, callee: str, calls: list[Span], parallel: set[int], tree: SpanTree, cycle: bool) -> Edge:
    kinds = Counter(c.kind for c in calls)
    sums: dict[str, Any] = {
        name: sum(getattr(call, name) for call in calls)
        for name in ("duration", "queue", "bytes_in", "bytes_out", "crossings", "cached")
    }
    queued = sums.pop("queue")
    waiting = sum(total([serving(c)]) - tree.own_time(c) for c in calls)
    return Edge(
        caller,
        callee,
        len(calls),
        sum(c.id in parallel for c in calls),
        kinds["sync"],
        kinds["async"],
        kinds["stream"],
        kinds["ensemble"],
        queued=queued,
        self_time=sums["duration"] - queued - waiting,
        waiting=waiting,
        errors=sum(c.state == "error" for c in calls),
        cycle=cycle,
        **sums,
    )


def _on_cycles(edges: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """Return, for each model on a cycle of calls, the models on cycles through it."""
    after = grouped(edges)
    callees = {name: reached(name, after) for name in after}
    return {
        name: frozenset(other for other in found if name in callees.get(other, ()))
        for name, found in callees.items()
        if name in found
    }


def overlapping(intervals: list[Interval]) -> list[bool]:
    """Return for each interval whether it overlaps another one."""
    out = [False] * len(intervals)
    furthest, owner = -1, -1
    for index in sorted(range(len(intervals)), key=intervals.__getitem__):
        begin, end = intervals[index]
        if owner >= 0 and begin < furthest and begin < end:
            out[index] = out[owner] = True
        if end > furthest and begin < end:
            furthest, owner = end, index
    return out
