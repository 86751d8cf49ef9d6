from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.display.mime_bundle import render
from bls_notebook.profiling.server_trace import load_server_trace, read_trace, server_session
from bls_notebook.profiling.session import Session, load_session
from tests.display.samples import HOSTILE

RECORDED = Path(__file__).parent / "data" / "server_trace.json.gz"
OBSERVED = Path(__file__).parents[1] / "conformance" / "observed"
STAMPS = ("REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START",
          "COMPUTE_END", "REQUEST_END")  # fmt: skip


def rows(id: int, model: str, *at: int, parent: int = 0, **more: Any) -> list[dict[str, Any]]:
    """A request's rows, its stamps in microseconds."""
    stamps = [{"id": id, "timestamps": [{"name": n, "ns": 1000 * ns}]} for n, ns in zip(STAMPS, at, strict=False)]
    of = {"parent_id": parent} if parent else {}
    return [{"id": id, "model_name": model, "model_version": 1, **of, **more}, *stamps]


def session(*found: list[dict[str, Any]]) -> Session:
    return server_session([read_trace(json.dumps([row for each in found for row in each]))])


@pytest.fixture(scope="module")
def recorded() -> Session:
    return load_server_trace(RECORDED)


def test_a_recorded_server_trace_is_read(recorded: Session) -> None:
    by_model: dict[str, list[Any]] = {}
    for span in recorded.spans:
        assert 0 <= span.sent <= span.queued <= span.started <= span.inferred <= span.ended <= recorded.wall
        by_model.setdefault(span.model, []).append(span)
    instances = {model.name: len(model.instances) for model in recorded.models}
    assert (instances["slow"], instances["fan"], instances["around"]) == (2, 1, 0)  # slow had 2 there
    batched = [span.batch for span in by_model["slow"] if not span.parent]
    assert sorted(map(batched.count, set(batched))) == [4, 4, 4]
    assert {(s.bytes_in, s.bytes_out) for s in by_model["slow"]} == {(4, 4)}
    assert [s.kind for s in by_model["slow"] if s.parent] == ["async", "async", "async", "sync"]
    (stream,) = by_model["square_int32"]
    assert (stream.kind, stream.responses, len(stream.marks)) == ("stream", 4, 4)  # the empty final one too
    assert 'qu"ote\\' in {span.request_id for span in by_model["leaf"]}
    assert [span.ran for span in by_model["batcher"]] == [False]  # the response cache answered
    assert recorded.sender == "clients"
    assert "1 request never reached an instance" in recorded.notes[1]


def test_the_same_pipeline_has_the_same_graph_here(recorded: Session) -> None:
    x = {"X": np.ones(1, np.float32)}
    with bls.ModelRepository(OBSERVED) as repository:
        for name in ("leaf", "around", "relay"):
            repository.load(name)
        with bls.profile() as profile:
            assert repository.infer("relay", x).error is None
            repository.infer("around", {"X": -x["X"]})
            repository.infer("leaf", x)
    mine = {span.id for span in recorded.spans if span.model in {"relay", "around", "leaf"}}

    def edges(of: Session) -> dict[tuple[str, str], tuple[int, int]]:
        graph = of.graph()
        return {(e.caller, e.callee): (e.calls, e.ensemble) for e in graph.edges if e.callee in names}

    names = {span.model for span in recorded.spans if span.id in mine}
    here, there = edges(profile.record), edges(recorded)
    calls, steps = here["relay", "leaf"]
    here["relay", "leaf"] = (calls - 1, steps)  # relay sends one without its trace
    assert here == there


def test_a_server_trace_is_drawn_judged_and_saved(recorded: Session, tmp_path: Path) -> None:
    shown = render(recorded)
    for form in (shown.text, shown.html):
        assert "clients" in form
        assert "From a server" in form
        assert "notebook" not in form
    assert "clients" in render(recorded.graph()).mermaid
    assert recorded.verdict().cause
    assert load_session(recorded.save(tmp_path / "s.json")) == recorded


def test_clients_that_take_turns_are_told_what_they_can_do() -> None:
    found = session(*(rows(i, "a", *(100_000 * i + at for at in (0, 1, 2, 3, 90_000, 90_001, 90_002)))
                      for i in range(1, 9)))  # fmt: skip
    assert "clients can send them together" in found.verdict().advice


def test_several_files_and_a_cut_one(tmp_path: Path, recorded: Session) -> None:
    arrays = re.split(rb"(?<=\])\n(?=\[)", gzip.decompress(RECORDED.read_bytes()))
    whole = tmp_path / "trace.json"
    text = b"".join(arrays)
    whole.write_bytes(gzip.compress(text))
    assert load_server_trace(whole).spans == recorded.spans
    whole.write_bytes(gzip.compress(text, mtime=0)[:-40])
    assert 20 < len(load_server_trace(whole).spans) <= len(recorded.spans)
    (tmp_path / "cut.json").write_bytes(text[:-300])
    cut = load_server_trace(tmp_path / "cut.json")
    assert len(cut.spans) == len(recorded.spans)
    assert "1 of 1 files has no end" in cut.notes[-1]
    for number, array in enumerate(arrays):
        (tmp_path / f"many.json.{number + 1}").write_bytes(array)
    (tmp_path / "many.json.bak").write_text("not read")
    assert load_server_trace(tmp_path / "many.json").spans == recorded.spans
    assert load_server_trace(RECORDED, limit=5).dropped == len(recorded.spans) - 5


def test_the_ids_of_another_array_are_others() -> None:
    one = json.dumps(rows(1, "a", 0 + 5, 6, 7, 8, 9, 10, 11) + rows(2, "b", 6, 7, 8, 8, 9, 9, 9, parent=1))
    found = server_session([read_trace(one + one)])
    assert [(span.model, span.parent) for span in found.spans] == [("a", 0), ("a", 0), ("b", 1), ("b", 2)]


def test_hostile_texts_and_circles_do_no_harm() -> None:
    found = session(
        rows(1, HOSTILE, 1, 2, 3, 4, 5, 6, 7, parent=2, request_id=HOSTILE),
        rows(2, "b", 1, 2, 3, 4, 5, 6, 7, parent=1),
        rows(3, "b", 1, 2, 3, parent=3),
        [{"id": 4, "timestamps": [{"name": HOSTILE, "ns": 2000}]}, *rows(4, "c", 9)],
        [{"id": 5, "timestamps": "no", "tensor": 5}, {"id": 6, "model_name": 3, "model_version": True}],
    )
    assert [span.parent for span in found.spans] == [0, 1, 0, 0]
    assert "<script" not in render(found).html.replace("<script type", "")
    assert found.marks[0].name == HOSTILE
    assert "2 requests left out" in found.notes[-1]


@pytest.mark.slow
def test_rows_without_commas_are_each_read_once() -> None:
    trace = read_trace("[" + '{"x":1,"id":1}' * 300_000)
    assert [len(array) for array in trace.arrays] == [300_000]


def test_a_row_may_be_long() -> None:
    long = {"id": 2, "name": "x" * 300_000}
    assert read_trace(json.dumps([{"id": 1}, long])[:-1] + "{").arrays == [[{"id": 1}, long]]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ('{"traceEvents": []}', "it begins with"),
        ("[1, 2]", "JSON of another kind"),
        ('[{"id": 1, "timestamps": [{"name": "HTTP_RECV_START", "ns": 5}]}]', "no request with timestamps"),
        ("[", "no request with timestamps"),
    ],
)
def test_other_files_are_refused_in_a_line(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text(text)
    with pytest.raises(bls.BLSError, match=why) as caught:
        load_server_trace(file)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(bls.BLSError, match=r"'none\.json': it cannot be read: No such file"):
        load_server_trace(tmp_path / "none.json")
    with pytest.raises(bls.BLSError, match="expected the path of a file, got int"):
        load_server_trace(5)  # type: ignore[arg-type]


@given(cut=st.integers(0, 27_000), junk=st.sampled_from(["", '"', "]", "[", "{", ',{"id":', "\0", "[[[["]))
def test_a_damaged_file_is_read_as_far_as_it_goes(cut: int, junk: str) -> None:
    text = gzip.decompress(RECORDED.read_bytes()).decode(errors="replace")
    try:
        found = server_session([read_trace(text[:cut] + junk + text[cut + 50 :])])
    except ValueError:
        return
    assert len(found.spans) > 15
    found.statistics()
