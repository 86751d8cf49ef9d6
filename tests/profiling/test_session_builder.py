from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.pb_utils.options import DEFAULT_OPTIONS, Options
from bls_notebook.profiling.request_log import BLOCK, Log, Ran
from bls_notebook.profiling.session import Mark, ModelSeen, Session, Span
from bls_notebook.profiling.session_builder import session_of, with_server_times
from bls_notebook.profiling.span_recorder import Observation, running_log
from bls_notebook.records.models import RecordedInstance
from bls_notebook.records.statistics import StatisticsRecord, Times

MS = 1_000_000
SEEN = ModelSeen("m", 2)
PLACE = RecordedInstance(SEEN, "m_0", "cpu", None)
OPTIONS = Options("r", 7, 1)
GOOD = SimpleNamespace(_error=None, _outputs=[])


def bad(code: str) -> Any:
    return SimpleNamespace(_error=SimpleNamespace(_code=SimpleNamespace(name=code), _message="why"), _outputs=[])


@pytest.fixture
def log() -> Iterator[Log]:
    observation = Observation(100)
    yield observation.log
    observation.stop()
    assert running_log() is None


def test_observations_that_overlap_share_a_log_until_the_last_one_stops(log: Log) -> None:
    other = Observation(10)
    assert running_log() is log is other.log
    other.stop()
    other.stop()
    assert running_log() is log
    another = Observation(10)
    del another  # which also ends it
    assert running_log() is log


def frozen(log: Log, end: int = 100, limit: int = 100) -> Session:
    return session_of(log, 0, end, limit)


def times(span: Span) -> tuple[int, ...]:
    return span.sent, span.queued, span.started, span.inferred, span.ended


def in_parts(log: Log) -> int:
    number = log.take()
    log.begun.extend((number, 0, SEEN, "async", DEFAULT_OPTIONS, 0, 10, 15))
    log.place(number, PLACE, 1, 20)
    log.ran.extend(Ran(number, 30, 40))
    log.end(number, 35, GOOD, 1, 0)
    return number


@pytest.mark.parametrize(
    ("end", "expected", "ran"),
    [(12, (10, 12, 12, 12, 12), False), (17, (10, 15, 17, 17, 17), False), (25, (10, 15, 20, 25, 25), True),
     (32, (10, 15, 20, 30, 32), True)],
)  # fmt: skip
def test_steps_after_the_end_have_not_happened(log: Log, end: int, expected: tuple[int, ...], ran: bool) -> None:
    in_parts(log)
    (span,) = frozen(log, end).spans
    assert (times(span), span.state, span.ran, span.responses) == (expected, "open", ran, 0)
    (span,) = frozen(log, 35).spans
    assert (times(span), span.state, span.thread) == ((10, 15, 20, 30, 35), "ok", threading.get_ident())
    assert frozen(log).spans[0].released == 40


def test_states(log: Log) -> None:
    for response in (GOOD, bad("INTERNAL"), bad("CANCELLED"), None):
        number = log.take()
        log.begun.extend((number, 0, SEEN, "sync", DEFAULT_OPTIONS, 0, 10, 10))
        log.end(number, 20, response, int(response is not None and response._error is None), 0)
    states = [("ok", ""), ("error", "why"), ("cancelled", "why"), ("cancelled", "")]
    assert [(s.state, s.error, s.ran) for s in frozen(log).spans] == [(*state, False) for state in states]


def test_parents_batches_marks_and_the_rest(log: Log) -> None:
    parent, child, other = log.take(), log.take(), log.take()
    log.begun.extend((parent, log.base + 50, SEEN, "stream", DEFAULT_OPTIONS, 0, 10, 10))
    log.begun.extend((child, parent, SEEN, "async", DEFAULT_OPTIONS, 0, 12, 12))
    log.begun.extend((other, parent, SEEN, "async", DEFAULT_OPTIONS, 0, 11, 12))
    for number in (child, other):
        log.place(number, PLACE, 1, 13, child)
    for ns, kind in ((30, "final"), (20, "response"), (300, "response")):
        log.mark(parent, ns, kind)
    log.cached.append(other)
    log.crossed.extend((child, 2, child, 1))
    log.timed.extend((child, SimpleNamespace(ns=lambda: 5)))
    log.end(child, 40, GOOD, 1, 0)
    # Numbers of other profiles are ignored.
    log.place(log.base, PLACE, 1, 20)
    log.ran.extend(Ran(log.base, 30, 40))
    log.end(log.base, 35, GOOD, 1, 0)
    log.held.extend((child, 45, log.base, 3))
    one, three, two = frozen(log).spans  # in the order of sending
    assert [(s.id, s.parent, s.batch) for s in (one, two, three)] == [(1, 0, 0), (2, 1, 1), (3, 1, 1)]
    assert one.marks == (Mark(20, "response"), Mark(30, "final"))
    assert (two.crossings, two.device_ns, two.ended) == (3, 5, 45)
    assert (three.cached, three.device_ns) == (True, -1)


def test_an_iterative_sequence_began_when_it_first_ran(log: Log) -> None:
    number = log.take()
    log.begun.extend((number, 0, SEEN, "sync", DEFAULT_OPTIONS, 0, 10, 10))
    for started in (20, 30):
        log.place(number, PLACE, 1, started)
        log.ran.extend(Ran(number, started + 5, started + 6))
    log.end(number, 35, GOOD, 1, 0)
    assert [(s.started, s.inferred, s.released) for s in frozen(log).spans] == [(20, 35, 36)]


def test_many_threads_lose_nothing() -> None:
    observation = Observation(4 * BLOCK)
    log = observation.log
    begin = threading.Barrier(4)

    def work() -> None:
        begin.wait()
        for _ in range(BLOCK):
            in_parts(log)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    observation.stop()
    session = frozen(log, limit=10 * BLOCK)
    assert len({s.id for s in session.spans}) == 4 * BLOCK
    assert ({s.state for s in session.spans}, session.dropped) == ({"ok"}, 0)


NS = st.integers(0, 120)


@given(st.lists(st.tuples(NS, NS, NS, NS, NS, NS, st.booleans()), max_size=5), NS)
def test_times_are_in_order_whatever_the_clock_said(raw: list[tuple[Any, ...]], end: int) -> None:
    log = Observation(10).log
    for sent, queued, started, inferred, released, ended, answered in raw:
        number = log.take()
        log.begun.extend((number, 0, SEEN, "sync", DEFAULT_OPTIONS, 0, sent, queued))
        log.place(number, PLACE, 1, started)
        log.ran.extend(Ran(number, inferred, released))
        if answered:
            log.end(number, ended, GOOD, 1, 0)
    session = frozen(log, end)
    for span in session.spans:
        order = (0, *times(span), session.wall)
        assert order == tuple(sorted(order))
        assert not span.ran or span.started <= span.released
    assert len(session.spans) == sum(t[0] <= end for t in raw)


FAR = ModelSeen("far", remote="grpc://h:1")
KEY = ("far", 1)


def ran(number: int, ns: int, model: str = "far", state: str = "ok") -> Span:
    return Span(number, model, instance="i", started=MS, inferred=MS + ns, ended=MS + ns, state=state)


def counted(requests: int, ns: int) -> dict[tuple[str, int], StatisticsRecord]:
    return {KEY: StatisticsRecord("far", success=Times(requests, ns), queue=Times(requests, ns // 4))}


REMOTE = Session((ran(1, 5 * MS), ran(2, 3 * MS), ran(3, 9 * MS, "near"), ran(4, MS, state="error")), (FAR,))


def test_each_request_to_a_server_has_the_mean_of_its_statistics() -> None:
    session = with_server_times(REMOTE, counted(10, 100 * MS), counted(12, 108 * MS))
    there = "grpc://h:1 (mean)"
    assert [(s.device, s.device_ns) for s in session.spans] == [
        (there, 4 * MS), (there, 3 * MS), ("cpu", -1), ("cpu", -1),
    ]  # fmt: skip
    (note,) = session.notes
    assert "a request took 4.00 ms: 4.00 ms of it at grpc://h:1 (queue 1.00 ms" in note
    assert "other clients" not in note
    (note,) = with_server_times(REMOTE, counted(0, 0), counted(5, 5 * MS)).notes
    assert "its means include 3 requests of other clients" in note
    assert "3.00 ms network and protocol" in note


def test_without_statistics_of_a_server_a_session_stays_as_it_is() -> None:
    for before, after in (({}, {}), (counted(1, 1), {}), (counted(9, 9), counted(1, 1))):
        session = with_server_times(REMOTE, before, after)
        assert session.spans == REMOTE.spans
        assert after or "the server gave no statistics" in session.notes[0]
    plain = Session((ran(1, MS, "near"),), (ModelSeen("near"),))
    assert with_server_times(plain, {}, {}) == plain
