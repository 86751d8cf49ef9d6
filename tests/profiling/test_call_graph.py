from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.profiling.analysis.call_graph import CallGraph, Edge, _on_cycles
from bls_notebook.profiling.records.session import ModelSeen, Session, Span
from tests.profiling.simulated import Model, session
from tests.profiling.strategies import sessions


def edge(graph: CallGraph, caller: str, callee: str) -> Edge:
    (found,) = (e for e in graph.edges if (e.caller, e.callee) == (caller, callee))
    return found


def test_calls_in_sequence_and_in_parallel() -> None:
    models = {"a": Model([5, "b", "b", ("c", "c", "c"), "c"]), "b": Model([10]), "c": Model([20], 2)}
    graph = session(models, "a").graph()
    b, c = edge(graph, "a", "b"), edge(graph, "a", "c")
    assert (b.calls, b.parallel, b.sync, b.asynchronous) == (2, 0, 2, 0)
    assert (c.calls, c.parallel, c.sync, c.asynchronous) == (4, 3, 1, 3)
    assert (b.duration, b.queued, b.self_time, b.waiting) == (24, 0, 24, 0)
    assert (c.queued, c.duration) == (21, 4 * 22 + 21)
    whole = edge(graph, "", "a")
    assert whole.calls == 1
    assert whole.waiting == 12 * 2 + 22 + 21 + 22
    assert whole.self_time == 5 + 2
    assert [n.name for n in graph.nodes] == ["a", "b", "c"]
    assert not any(n.cycle for n in graph.nodes)


def test_versions_are_told_apart_where_there_are_several() -> None:
    spans = (Span(1, "a", version=1), Span(2, "a", version=2), Span(3, "b", version=7))
    graph = Session(spans).graph()
    assert [n.name for n in graph.nodes] == ["a/1", "a/2", "b"]


def test_steps_of_an_ensemble() -> None:
    spans = (
        Span(1, "e", instance="e", started=0, inferred=9, ended=9),
        Span(2, "a", parent=1, kind="ensemble", instance="a_0", sent=1, started=1, inferred=4, ended=4),
        Span(3, "b", parent=1, kind="ensemble", instance="b_0", sent=4, started=4, inferred=9, ended=9),
    )
    graph = Session(spans, (ModelSeen("e", scheduler="ensemble"),), wall=9).graph()
    assert [n.ensemble for n in graph.nodes] == [False, False, True]
    assert (edge(graph, "e", "a").ensemble, edge(graph, "e", "a").parallel) == (1, 0)
    assert edge(graph, "", "e").self_time == 1


@given(sessions())
def test_every_call_is_on_one_edge_and_its_time_adds_up(record: Session) -> None:
    graph = record.graph()
    assert sum(e.calls for e in graph.edges) == sum(n.calls for n in graph.nodes) == len(record.spans)
    for e in graph.edges:
        assert e.self_time + e.waiting + e.queued == e.duration
        assert min(e.self_time, e.waiting, e.queued) >= 0
        assert e.sync + e.asynchronous + e.stream + e.ensemble == e.calls >= e.parallel
        assert not e.cycle
    assert sum(e.duration for e in graph.edges) == sum(s.duration for s in record.spans)
    assert CallGraph.from_dict(json.loads(json.dumps(graph.to_dict()))) == graph


names = st.sampled_from("abcdef")


@given(st.sets(st.tuples(names, names)))
def test_circles_against_brute_force(edges: set[tuple[str, str]]) -> None:
    reach = {n: {b for a, b in edges if a == n} for n in "abcdef"}
    for _ in range(6):
        for n in reach:
            reach[n] = reach[n].union(*(reach[m] for m in reach[n]))
    expected = {n: frozenset(m for m in "abcdef" if m in reach[n] and n in reach[m]) for n in reach if n in reach[n]}
    assert _on_cycles(sorted(edges)) == expected
