"""The statistics and the call graph of sessions."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.profiling.analysis.call_graph import CallGraph, Edge
from bls_notebook.profiling.analysis.session_statistics import ModelStatistics, SessionStatistics
from bls_notebook.profiling.analysis.span_tree import SpanTree
from bls_notebook.profiling.intervals import total
from bls_notebook.profiling.session import ModelSeen, Session, Span
from tests.profiling.simulated import Model, session
from tests.profiling.strategies import sessions


def of_model(session: Session, name: str) -> ModelStatistics:
    (found,) = (m for m in session.statistics().models if m.name == name)
    return found


def test_the_callees_of_a_batch_are_waited_for_by_all_of_it() -> None:
    record = session({"a": Model([10, "b"], batch=2), "b": Model([20])}, ("a", "a"))
    first, second = (s.id for s in record.spans if s.model == "a")
    tree = SpanTree(record)
    assert tree.execution(second) == first
    assert total(tree.in_flight(first)) == 22
    assert of_model(record, "a").waiting == 22


def test_requests_that_never_ran_take_no_instance() -> None:
    refused = Span(1, "a", sent=2, queued=2, started=2, inferred=2, ended=3, state="error")
    hit = Span(2, "a", sent=4, queued=5, started=5, inferred=5, ended=5, cached=True)
    waited = Span(3, "a", sent=5, queued=6, started=9, inferred=9, ended=9, state="cancelled")
    figures = Session((refused, hit, waited), wall=10).statistics()
    assert (figures.failed, figures.cached, figures.cancelled, figures.queued) == (1, 1, 1, 3)
    assert figures.busy == 2  # two inputs were handed over
    assert (figures.models[0].executions, figures.models[0].busy) == (0, 0)


def test_device_time_is_told_where_it_was_measured() -> None:
    on_gpu = Span(1, "a", instance="a_0", device="gpu:0", started=0, inferred=9, ended=9, device_ns=7)
    also = Span(2, "a", instance="a_0", device="gpu:0", started=9, inferred=12, ended=12, device_ns=2)
    assert of_model(Session((on_gpu, also), wall=12), "a").device_ns == 9
    assert of_model(session({"a": Model([1])}, "a"), "a").device_ns == -1


@given(sessions())
def test_figures_agree_with_each_other(record: Session) -> None:
    figures = record.statistics()
    assert figures.requests == len(record.spans) == sum(m.requests for m in figures.models)
    assert figures.busy <= figures.wall
    assert figures.overlap <= figures.busy <= figures.work
    assert figures.waited <= figures.queued
    assert (figures.overlap > 0) == (figures.peak > 1)
    assert sum(m.critical for m in figures.models) + figures.notebook == figures.wall
    for model in figures.models:
        assert model.self_time + model.waiting <= model.busy
    assert SessionStatistics.from_dict(json.loads(json.dumps(figures.to_dict()))) == figures


@given(sessions())
def test_figures_are_those_counted_moment_by_moment(record: Session) -> None:
    executions: dict[tuple[int, int], list[Span]] = {}
    for span in record.spans:
        executions.setdefault((span.batch, 0) if span.batch else (0, span.id), []).append(span)
    ran = {m[0].id: m for m in executions.values()}
    sent = {e: [c for c in record.spans if c.parent in {s.id for s in m}] for e, m in ran.items()}
    own = dict.fromkeys({s.model for s in record.spans}, 0)
    level, waiting = [], 0
    for t in range(record.wall):
        at_work = [
            m[0].model
            for e, m in ran.items()
            if m[0].started <= t < m[0].ended and not any(c.sent <= t < c.ended for c in sent[e])
        ]
        for model in at_work:
            own[model] += 1
        level.append(len(at_work) + sum(s.sent <= t < s.queued for s in record.spans))
        waiting += any(s.queued <= t < s.started for s in record.spans)
    figures = record.statistics()
    assert {m.name: m.self_time for m in figures.models} == own
    assert (figures.busy, figures.work) == (sum(n > 0 for n in level), sum(level))
    assert (figures.overlap, figures.peak) == (sum(n > 1 for n in level), max(level, default=0))
    assert figures.waited == waiting


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


NAMES = st.sampled_from("abcdef")
