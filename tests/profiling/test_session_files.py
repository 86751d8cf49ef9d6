from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.profiling import chrome_trace as chrome_trace_module
from bls_notebook.profiling.chrome_trace import chrome_trace
from bls_notebook.profiling.session import SCHEMA, Mark, ModelSeen, NamedMark, Session, Span, load_session
from bls_notebook.records.errors import BLSError
from tests.profiling.simulated import Model, session
from tests.profiling.strategies import sessions

HOSTILE = "<b>&\"'\n\u202e\ud800=cmd|"
ODD = Session(
    (
        Span(1, HOSTILE, 2, instance=HOSTILE, sent=1, queued=2, started=2, inferred=4, ended=9, kind="stream",
             marks=(Mark(3), Mark(9, "final")), responses=2, request_id=HOSTILE, device_ns=5, crossings=1),
        Span(2, "=a", parent=1, sent=3, queued=3, started=3, inferred=3, ended=3, cached=True),
        Span(3, "a", parent=1, sent=3, queued=4, started=5, inferred=5, ended=5, state="error",
             error=HOSTILE),
        Span(4, "a", parent=99, instance="a_0", sent=3, queued=4, started=5, inferred=6, ended=6, batch=1),
        Span(5, "a", parent=1, instance="a_0", sent=2, queued=4, started=5, inferred=6, ended=7, batch=1,
             state="open"),
    ),
    (ModelSeen(HOSTILE, instances=(HOSTILE, "x")),), 10, "2026-01-01T00:00:00Z", HOSTILE, 3,
)  # fmt: skip


@pytest.mark.parametrize("name", ["s.json", "s.json.gz"])
@given(record=st.one_of(sessions(), st.from_type(Session).filter(lambda any_: isfinite(any_.others)), st.just(ODD)))
def test_a_saved_session_loads_as_it_was(record: Session, name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    record = replace(record, schema=SCHEMA)
    path = record.save(tmp_path_factory.mktemp("s") / name)
    assert load_session(path) == record


def test_marks_are_points_in_traces() -> None:
    record = replace(session({"a": Model([5])}, "a"), marks=(NamedMark(1, HOSTILE), NamedMark(2, "inside", 1)))
    events = json.loads(chrome_trace(record))["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert [(e["name"], processes[e["pid"]], e["ts"], e["args"]) for e in events if e.get("cat") == "mark"] == [
        (HOSTILE, "notebook", 0.001, {}), ("inside", "a", 0.002, {"request": 1}),
    ]  # fmt: skip


def test_files_are_small_and_reproducible(tmp_path: Path) -> None:
    record = session({"a": Model([5])}, *["a"] * 1000)
    text, packed, again = (record.save(tmp_path / name).read_bytes() for name in ("1.json", "1.json.gz", "2.json.gz"))
    assert len(text) < 200 * len(record.spans)
    assert packed == again
    assert gzip.decompress(packed) == text


def test_load_names_the_kind_of_a_chrome_trace(tmp_path: Path) -> None:
    with pytest.raises(BLSError, match="its kind is 'Chrome trace'"):
        bls.open_file(Session().save(tmp_path / "s.trace.json"))


def test_an_ending_that_nobody_knows_and_a_file_that_is_not_there(tmp_path: Path) -> None:
    for name in ("s.txt", "s", ".json"):
        with pytest.raises(BLSError, match=r"must end with .trace.json, .json, .json.gz"):
            Session().save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BLSError, match="cannot be read from it: No such file"):
        load_session(tmp_path / "none.json")


def test_a_failed_save_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.trace.json"
    path.write_bytes(b"before")

    def fails(session: Any) -> str:
        raise BLSError("no trace")

    monkeypatch.setattr(chrome_trace_module, "chrome_trace", fails)
    with pytest.raises(BLSError, match="no trace"):
        Session().save(path)
    assert path.read_bytes() == b"before"


def test_instances_and_queues_have_threads() -> None:
    record = session({"a": Model([5], 2), "b": Model([1, ("a",) * 5])}, "b")
    names = [e["args"]["name"] for e in json.loads(chrome_trace(record))["traceEvents"] if e["name"] == "thread_name"]
    assert sorted(names) == ["a_0", "a_1", "b_0", "notebook", *["queue of a"] * 3]


@given(st.one_of(sessions(), st.just(ODD)))
def test_chrome_events_have_what_the_format_asks_for(record: Session) -> None:
    whole = json.loads(chrome_trace(record))
    by_phase: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in whole["traceEvents"]:
        assert {"ph", "pid", "tid", "name"} <= set(event)
        if event["ph"] != "M":
            assert event["ts"] >= 0
        by_phase[event["ph"]].append(event)
    open_until: dict[int, list[float]] = defaultdict(list)  # slices of a thread nest
    for piece in sorted(by_phase["X"], key=lambda e: (e["ts"], -e["dur"])):
        outer, end = open_until[piece["tid"]], round(1000 * (piece["ts"] + piece["dur"]))
        while outer and outer[-1] <= round(1000 * piece["ts"]):
            outer.pop()
        assert not outer or end <= outer[-1]
        outer.append(end)
    spans = {s.id: s for s in record.spans}
    assert len(by_phase["s"]) == len(by_phase["f"]) == len(spans)
    starts = {e["id"]: e["ts"] for e in by_phase["s"]}
    ends = {e["id"]: e["ts"] for e in by_phase["f"]}
    assert starts == {i: s.sent / 1e3 for i, s in spans.items()}
    assert all(e["bp"] == "e" for e in by_phase["f"])
    assert ends == {i: (s.started if s.ran else s.sent) / 1e3 for i, s in spans.items()}
    executed = {e["args"]["request"]: e for e in by_phase["X"] if e["cat"] == "execute"}
    for span in record.spans:
        if span.ran and not span.batch:
            assert executed[span.id]["ts"] == span.started / 1e3
            assert executed[span.id]["dur"] == (span.ended - span.started) / 1e3
            notes = {"device_ns": -1, "crossings": 0, **executed[span.id]["args"]}
            assert all(notes[k] == getattr(span, k) for k in ("kind", "version", "device_ns", "crossings"))
    names = {e["args"]["name"] for e in by_phase["M"] if e["name"] == "process_name"}
    assert len(names) == len({e["pid"] for e in whole["traceEvents"]})
