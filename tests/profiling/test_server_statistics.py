from __future__ import annotations

from bls_notebook.profiling.records.session import Session
from bls_notebook.profiling.records.spans import ModelSeen, Span
from bls_notebook.profiling.session_builder import with_server_times
from bls_notebook.records.statistics import StatisticsRecord, Times

FAR = ModelSeen("far", remote="grpc://h:1")
MS = 1_000_000


def span(number: int, length: int, model: str = "far", state: str = "ok") -> Span:
    return Span(number, model, instance="i", started=MS, inferred=MS + length, ended=MS + length, state=state)


def counted(requests: int, ns: int) -> StatisticsRecord:
    return StatisticsRecord("far", success=Times(requests, ns), queue=Times(requests, ns // 4))


SESSION = Session((span(1, 5 * MS), span(2, 3 * MS), span(3, 9 * MS, "near"), span(4, MS, state="error")), (FAR,))
KEY = ("far", 1)


def test_each_request_has_the_mean() -> None:
    session = with_server_times(SESSION, {KEY: counted(10, 100 * MS)}, {KEY: counted(12, 108 * MS)})
    lengths = {s.id: (s.device, s.device_ns) for s in session.spans}
    there = "grpc://h:1 (mean)"
    assert lengths == {1: (there, 4 * MS), 2: (there, 3 * MS), 3: ("cpu", -1), 4: ("cpu", -1)}
    (note,) = session.notes
    assert "a request took 4.00 ms: 4.00 ms of it at grpc://h:1 (queue 1.00 ms" in note
    assert "other clients" not in note


def test_requests_of_others_are_told() -> None:
    session = with_server_times(SESSION, {KEY: counted(0, 0)}, {KEY: counted(5, 5 * MS)})
    assert "its means include 3 requests of other clients" in session.notes[0]
    assert "3.00 ms network and protocol" in session.notes[0]


def test_a_server_that_tells_nothing() -> None:
    for before, after in (({}, {}), ({KEY: counted(1, 1)}, {})):
        session = with_server_times(SESSION, before, after)
        assert session.spans == SESSION.spans
        assert "the server gave no statistics" in session.notes[0]
    began_anew = with_server_times(SESSION, {KEY: counted(9, 9)}, {KEY: counted(1, 1)})
    assert began_anew.spans == SESSION.spans


def test_a_session_without_remote_models_is_as_it_is() -> None:
    plain = Session((span(1, MS, "near"),), (ModelSeen("near"),))
    assert with_server_times(plain, {}, {}) == plain
