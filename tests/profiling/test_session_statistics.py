from __future__ import annotations

import json

from hypothesis import given

from bls_notebook.profiling.analysis.session_statistics import ModelStatistics, SessionStatistics
from bls_notebook.profiling.analysis.span_tree import SpanTree
from bls_notebook.profiling.records.session import Session, Span
from bls_notebook.records.intervals import total, union
from tests.profiling.simulated import Model, session
from tests.profiling.strategies import sessions


def of_model(session: Session, name: str) -> ModelStatistics:
    (found,) = (m for m in session.statistics().models if m.name == name)
    return found


def test_an_empty_session_has_figures() -> None:
    figures = Session(wall=5).statistics()
    assert (figures.wall, figures.requests, figures.busy, figures.concurrency) == (5, 0, 0, 0.0)
    assert figures.notebook == 5


def test_a_batch_counts_once() -> None:
    record = session({"a": Model([10], batch=4)}, ("a",) * 4)
    a = of_model(record, "a")
    assert (a.requests, a.executions, a.busy) == (4, 1, 11)
    assert len({s.batch for s in record.spans}) == 1
    assert record.statistics().peak == 4  # four inputs at once, one execute


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
    assert (figures.failed, figures.cached, figures.cancelled) == (1, 1, 1)
    assert figures.queued == 3
    assert figures.busy == 2  # two inputs were handed over
    assert figures.models[0].executions == 0
    assert figures.models[0].busy == 0


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
        assert model.queued == model.queue.total
    assert total(union(SpanTree(record).working())) == figures.busy
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
