from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.engine.recording import log as recording
from bls_notebook.engine.recording.log import BLOCK, Log, RecordedInstance
from bls_notebook.profiling.records.session import Mark, ModelSeen, Session
from bls_notebook.profiling.session_builder import session_of

SEEN = ModelSeen("m", 2)
PLACE = RecordedInstance(SEEN, "m_0", "cpu", None)
OPTIONS = SimpleNamespace(request_id="r")
GOOD = SimpleNamespace(_error=None, _outputs=[])


def bad(code: str) -> Any:
    return SimpleNamespace(_error=SimpleNamespace(_code=SimpleNamespace(name=code), _message="why"), _outputs=[])


@pytest.fixture
def log() -> Iterator[Log]:
    found = recording.start("p", 100)
    yield found
    recording.stop("p")


def frozen(log: Log, end: int = 100, limit: int = 100) -> Session:
    return session_of(log, 0, end, limit)


def test_a_request_at_once(log: Log) -> None:
    number = log.take()
    log.inline.extend((number, 0, PLACE, OPTIONS, 64, 10, 7, 3, 20, 30, 35, 32))
    (span,) = frozen(log).spans
    assert (span.id, span.model, span.version, span.instance) == (1, "m", 2, "m_0")
    assert (span.sent, span.queued, span.started, span.inferred, span.ended) == (10, 20, 20, 30, 35)
    assert (span.released, span.thread, span.rows, span.bytes_in, span.bytes_out) == (35, 7, 3, 64, 32)
    assert (span.request_id, span.kind, span.state, span.responses) == ("r", "sync", "ok", 1)


def in_parts(log: Log) -> int:
    number = log.take()
    log.begun.extend((number, 0, SEEN, "async", "", 0, 10, 15))
    log.place(number, PLACE, 1, 20)
    log.ran.extend((number, 30, 40))
    log.answer(number, 35, GOOD)
    return number


def test_a_request_in_parts(log: Log) -> None:
    in_parts(log)
    (span,) = frozen(log).spans
    assert (span.sent, span.queued, span.started, span.inferred, span.ended) == (10, 15, 20, 30, 35)
    assert (span.released, span.thread) == (40, threading.get_ident())


@pytest.mark.parametrize(
    ("end", "times", "ran"),
    [
        (12, (10, 12, 12, 12, 12), False),
        (17, (10, 15, 17, 17, 17), False),
        (25, (10, 15, 20, 25, 25), True),
        (32, (10, 15, 20, 30, 32), True),
    ],
)
def test_what_comes_after_the_end_has_not_happened(log: Log, end: int, times: tuple[int, ...], ran: bool) -> None:
    in_parts(log)
    (span,) = frozen(log, end).spans
    assert (span.sent, span.queued, span.started, span.inferred, span.ended) == times
    assert (span.state, span.ran, span.responses) == ("open", ran, 0)
    assert frozen(log, 35).spans[0].state == "ok"


def test_states(log: Log) -> None:
    for response in (GOOD, bad("INTERNAL"), bad("CANCELLED"), None):
        number = log.take()
        log.begun.extend((number, 0, SEEN, "sync", "", 0, 10, 10))
        log.answer(number, 20, response)
    spans = frozen(log).spans
    assert [(s.state, s.error) for s in spans] == [
        ("ok", ""), ("error", "why"), ("cancelled", "why"), ("cancelled", ""),
    ]  # fmt: skip
    assert not any(s.ran for s in spans)


def test_parents_batches_marks_and_the_rest(log: Log) -> None:
    parent, child, other = log.take(), log.take(), log.take()
    log.begun.extend((parent, log.base + 50, SEEN, "stream", "", 0, 10, 10))
    log.begun.extend((child, parent, SEEN, "async", "", 0, 12, 12))
    log.begun.extend((other, parent, SEEN, "async", "", 0, 11, 12))
    for number in (child, other):
        log.place(number, PLACE, 1, 13, child)
    log.mark(parent, 30, "final")
    log.mark(parent, 20, "response")
    log.mark(parent, 300, "response")
    log.cached.append(other)
    log.crossed.extend((child, 2))
    log.crossed.extend((child, 1))
    log.timed.extend((child, SimpleNamespace(ns=lambda: 5)))
    log.answer(child, 40, GOOD)
    log.held.extend((child, 45))
    spans = {s.id: s for s in frozen(log).spans}
    assert [s.id for s in frozen(log).spans] == [1, 3, 2]  # in the order of sending
    assert [spans[i].parent for i in (1, 2, 3)] == [0, 1, 1]
    assert [spans[i].batch for i in (1, 2, 3)] == [0, 1, 1]
    assert spans[1].marks == (Mark(20, "response"), Mark(30, "final"))
    assert (spans[2].crossings, spans[2].device_ns, spans[2].ended) == (3, 5, 45)
    assert (spans[3].cached, spans[3].device_ns) == (True, -1)


def test_an_iterative_sequence_began_when_it_first_ran(log: Log) -> None:
    number = log.take()
    log.begun.extend((number, 0, SEEN, "sync", "", 0, 10, 10))
    for started in (20, 30):
        log.place(number, PLACE, 1, started)
        log.ran.extend((number, started + 5, started + 6))
    log.answer(number, 35, GOOD)
    (span,) = frozen(log).spans
    assert (span.started, span.inferred, span.released) == (20, 35, 36)


def test_entries_of_others_are_ignored(log: Log) -> None:
    log.place(log.base, PLACE, 1, 20)
    log.ran.extend((log.base, 30, 40))
    log.answer(log.base, 35, GOOD)
    log.held.extend((log.base, 3))
    assert frozen(log).spans == ()


def test_numbers_run_out_at_the_limit_and_a_nested_profile_brings_more(log: Log) -> None:
    assert len({log.take() for _ in range(100)}) == 100
    assert (log.take(), log.take(), log.dropped) == (0, 0, 2)
    assert recording.start("q", 5) is log
    assert [log.take() > 0 for _ in range(6)] == [True] * 5 + [False]
    recording.stop("q")
    assert recording.active is log
    recording.stop("q")
    assert recording.active is log


def test_logs_follow_each_other_with_numbers_of_their_own() -> None:
    first = recording.start("p", 10)
    one = first.take()
    assert recording.span_id(one) == 1
    recording.stop("p")
    second = recording.start("p", 10)
    assert second is not first
    other = second.take()
    assert recording.span_id(one) == 0
    assert recording.span_id(other) == 1
    recording.stop("p")
    assert recording.active is None


def test_many_threads_lose_nothing() -> None:
    log = recording.start("p", 4 * BLOCK)
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
    recording.stop("p")
    session = frozen(log, limit=10 * BLOCK)
    assert len({s.id for s in session.spans}) == 4 * BLOCK
    assert {s.state for s in session.spans} == {"ok"}
    assert session.dropped == 0


times = st.integers(0, 120)


@given(st.lists(st.tuples(times, times, times, times, times, times, st.booleans()), max_size=5), times)
def test_times_are_in_order_whatever_the_clock_said(raw: list[tuple[Any, ...]], end: int) -> None:
    log = recording.start("p", 10)
    recording.stop("p")
    for sent, queued, started, inferred, released, ended, answered in raw:
        number = log.take()
        log.begun.extend((number, 0, SEEN, "sync", "", 0, sent, queued))
        log.place(number, PLACE, 1, started)
        log.ran.extend((number, inferred, released))
        if answered:
            log.answer(number, ended, GOOD)
    session = frozen(log, end)
    for span in session.spans:
        order = (0, span.sent, span.queued, span.started, span.inferred, span.ended, session.wall)
        assert order == tuple(sorted(order))
        assert not span.ran or span.started <= span.released
    assert len(session.spans) == sum(t[0] <= end for t in raw)
