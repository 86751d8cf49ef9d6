"""Recorded requests sent again: to the same models, changed ones, one alone, by the command line."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.__main__ import main
from bls_notebook.display import render
from bls_notebook.testing.recording.recording import Recording
from bls_notebook.testing.recording.replaying import recorded_execution
from bls_notebook.testing.records import Replay, Resent
from tests.testing.models import HEAD, MODELS, floats, pipeline, send_all

ASKS = """
    def execute(self, requests):
        for _ in range({times}):
            x = pb_utils.get_input_tensor_by_name(requests[0], "X")
            asked = pb_utils.InferenceRequest(model_name="double", inputs=[x], requested_output_names=["Y"])
            y = asked.exec().output_tensors()
        return [pb_utils.InferenceResponse(y)]
"""


@pytest.fixture
def repo() -> Iterator[bls.ModelRepository]:
    with pipeline() as repo:
        yield repo


def recorded(repo: bls.ModelRepository) -> Recording:
    with bls.record(tensors="all") as recorder:
        send_all(repo, 9)
    return recorder.recording


def change(repo: bls.ModelRepository, name: str, before: str, after: str, to: str = "") -> None:
    source, config = MODELS[name]
    assert before in source
    repo.define(to or name, HEAD + source.replace(before, after), config=config)


def test_the_same_models_answer_the_same(repo: bls.ModelRepository, tmp_path: Path) -> None:
    first = recorded(repo)
    path = first.save(tmp_path / "run.blsrec")
    with bls.record(tensors="all") as recorder:
        again = bls.replay(path, repo=repo)
    hops = first.requests(hops=True), recorder.recording.requests(hops=True)
    for then, now in zip(*hops, strict=True):
        assert [t.values for t in then.kept.tensors] == [t.values for t in now.kept.tensors]
        assert then.model == now.model
    assert again.equal
    assert len(again.requests) == 10
    assert "ValueError: below zero" in again.requests[1].error
    assert all(each.now_ns > 0 for each in again.requests)
    assert all(each.then_ns > 0 for each in again.requests[:-1])  # the last was refused at once
    assert "✓ run.blsrec: 10 requests answered as recorded, equal bit by bit" in render(again).text


def test_differences_after_a_change_of_models(repo: bls.ModelRepository) -> None:
    recording = recorded(repo)
    change(repo, "double", "x *= 2", "x *= 3")
    change(repo, "stream", "for each in x:", "for each in x[:-1]:")
    again = bls.replay(recording, repo=repo)
    assert not again.equal
    said = {each.id: each.what for each in again.unequal}
    ids = {request.model: request.id for request in reversed(recording.record.requests) if request.outside}
    assert said[ids["twice"]] == ("output 'Z': 2 of 2 elements differ",)
    assert said[ids["stream"]] == ("2 responses recorded, 1 now",)
    assert said[ids["page"]] == ("output 'Y': 1 of 1 elements differ",)
    begins = {each.id: each.begins for each in again.unequal}
    step = ids["twice"] + 1
    assert begins[ids["twice"]] == f"begins in double, request {step}: same inputs, another response"
    assert begins[ids["stream"]] == f"begins in stream, request {ids['stream']}: same inputs, another response"
    assert "where: begins in double: same inputs, another response (requests 1, 9)" in render(again).text
    shown = render(again)
    assert "3 of 10 requests answered differently" in shown.text
    assert "[0] 6.0 and 3.0" in shown.text
    assert bls.replay(recording, "words", repo=repo).equal


def test_a_model_that_calls_otherwise(repo: bls.ModelRepository) -> None:
    recording = recorded(repo)
    change(repo, "page", 'parameters={"a": 1}', 'parameters={"a": 1, "b": 2}')
    found = bls.replay(recording, "page", repo=repo)
    assert found.equal  # its answers do not depend on it
    change(repo, "page", "total = sum(", "total = 1 + sum(")
    found = bls.replay(recording, "page", repo=repo)
    said = "begins in page, request 1: same inputs, another response; its callees respond as recorded"
    assert found.unequal[0].begins == said
    change(repo, "page", '"X", y)', '"X", y + 1)')
    found = bls.replay(recording, "page", repo=repo)
    assert found.unequal[0].begins == "begins in page: it sends stream another request than in request 3"
    change(repo, "page", "again.exec(decoupled=True)", "()")
    found = bls.replay(recording, "page", repo=repo)
    assert found.unequal[0].begins == "begins in page: it no longer calls stream, as in request 3"


def test_calls_that_appeared_or_disappeared(repo: bls.ModelRepository) -> None:
    repo.define("asks", HEAD + ASKS.format(times=2), config=MODELS["double"][1])
    for tensors in ("all", "outside"):
        with bls.record(tensors=tensors) as recorder:
            repo.infer("asks", {"X": floats(1)})
        repo.define("asks", HEAD + ASKS.format(times=3), config=MODELS["double"][1])
        again = bls.replay(recorder.recording, repo=repo)
        assert again.equal
        assert [each.calls for each in again.requests] == [("asks calls double 3 times, recorded 2",)]
        assert "calls changed" in render(again).text
        repo.define("asks", HEAD + ASKS.format(times=2), config=MODELS["double"][1])


def test_within_what_floats_may_differ_by(repo: bls.ModelRepository) -> None:
    recording = recorded(repo)
    change(repo, "double", "x *= 2", "x *= np.float32(2.000001)")
    assert not bls.replay(recording, "twice", repo=repo).equal
    assert bls.replay(recording, "twice", repo=repo, tolerance=1e-5).equal
    assert bls.replay(recording, "twice", repo=repo, ulps=20).equal
    assert render(bls.replay(recording, "twice", repo=repo)).text.startswith("✗")
    change(repo, "double", "x *= 2", "x *= np.float32(2.0000002)")
    nearly = bls.replay(recording, "twice", repo=repo)
    assert not nearly.equal
    assert render(nearly).text.startswith("≈")
    assert "in the last place (ulps=" in render(nearly).text
    assert 'class="bls-findings-tally-error"' not in render(nearly).html


def test_one_model_alone(repo: bls.ModelRepository) -> None:
    recording = recorded(repo)
    change(repo, "double", "x *= 2", "x *= 3")
    alone = bls.replay(recording, only="page", repo=repo)
    assert alone.equal
    assert (alone.only, alone.stubbed) == ("page", ("double", "stream"))
    assert "only page ran; answered from the recording: double, stream" in render(alone).text
    # What was answered for serves again, as it was.
    assert repo.infer("double", {"X": floats(1)})["Y"].as_numpy().tolist() == [3]
    assert not bls.replay(recording, only="double", repo=repo).equal
    # An ensemble is a model like others.
    assert bls.replay(recording, only="twice", repo=repo).equal


def test_a_model_that_asks_what_was_never_asked(repo: bls.ModelRepository) -> None:
    recording = recorded(repo)
    change(repo, "page", 'parameters={"a": 1}', 'parameters={"a": 2}')
    found = bls.replay(recording, only="page", repo=repo)
    assert any(
        "the nearest is request 2, where the parameters are {'a': 1}" in w for e in found.unequal for w in e.what
    )


def test_another_model_in_its_place(repo: bls.ModelRepository) -> None:
    recording = recorded(repo)
    change(repo, "double", "x *= 2", "x += x", to="double_v2")
    found = bls.replay(recording, "double_v2", only="double", repo=repo)
    assert found.equal
    assert {each.model for each in found.requests} == {"double_v2"}
    assert "sent to double_v2" in render(found).text
    with bls.record() as recorder:
        repo.infer("double", {"X": floats(1)})
    assert bls.replay(recorder.recording, "double_v2", repo=repo).to == "double_v2"


def test_a_stream_that_went_on_is_left_out(repo: bls.ModelRepository) -> None:
    with bls.record() as recorder:
        list(repo.stream("stream", {"X": floats(1)}))
        list(repo.stream("stream", {"X": floats(1, 2)}))
    record = recorder.record
    request = record.requests[1]
    cut = replace(request, responses=request.responses[:1])  # as when the recording ended between the two
    recording = Recording(replace(record, requests=(record.requests[0], cut)), recorder.recording.arrays)
    found = bls.replay(recording, repo=repo)
    assert found.equal
    assert found.skipped == ("request 2: no complete response was recorded",)


def test_a_stream_without_a_response_is_equal(repo: bls.ModelRepository) -> None:
    with bls.record() as recorder:
        list(repo.stream("stream", {"X": floats()}))
    assert bls.replay(recorder.recording, repo=repo).equal


def test_requests_that_cannot_be_replayed_are_told(repo: bls.ModelRepository) -> None:
    with bls.record(limit=30) as recorder:
        repo.infer("double", {"X": floats(1, 2, 3, 4, 5, 6, 7, 8)})
        repo.infer("double", {"X": floats(1)})
    found = bls.replay(recorder.recording, repo=repo)
    assert found.equal
    (told,) = found.skipped
    assert told.startswith("request 1: the values of its inputs were not recorded: over limit=30")
    assert "left out" in render(found).text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"model": "words_v2"}, "the recording has requests to page, words, stream, twice, bits, last, nobody"),
        ({"only": "none"}, "no request to model 'none'"),
        ({"only": "page", "server": True}, "its callees double, stream can .* or only= to run all models"),
        ({"tolerance": -1}, "got tolerance -1"),
        ({"model": "double_v3", "only": "double"}, "model 'double_v3' is not loaded"),
    ],
)
def test_wrong_arguments_of_replay(arguments: dict[str, Any], said: str, repo: bls.ModelRepository) -> None:
    with pytest.raises(bls.BLSError, match=said) as caught:
        bls.replay(recorded(repo), **arguments, repo=repo)
    assert "\n" not in str(caught.value)


def test_one_execution_again(repo: bls.ModelRepository) -> None:
    recording = recorded(repo)
    page, stream = (recorded_execution(recording, number, repo=repo) for number in (1, 3))
    assert (page.code.co_name, page.run()[0].output_tensors()[0].as_numpy().tolist()) == ("execute", [6])
    assert [r.output_tensors()[0].as_numpy().tolist() for r in stream.run()] == [[0], [2], [4]]
    change(repo, "double", "x *= 2", "x *= 3")
    assert recorded_execution(recording, 1, repo=repo).run()[0].output_tensors()[0].as_numpy().tolist() == [9]
    assert recorded_execution(recording, 1, alone=True, repo=repo).run()[0].output_tensors()[0].as_numpy().tolist() == [
        6
    ]
    twice = next(each.id for each in recording.record.requests if each.model == "twice")
    with pytest.raises(
        bls.BLSError, match=f"'twice' has no Python code .* its callees got the requests {twice + 1}, {twice + 2}"
    ):
        recorded_execution(recording, twice, repo=repo)
    with pytest.raises(bls.BLSError, match="there is no request 99; the requests are 1 to 16"):
        recorded_execution(recording, 99, repo=repo)


def command(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["replay", *words])
    return status, out.getvalue(), err.getvalue()


def test_by_the_command_line(tmp_path: Path) -> None:
    models = Path(__file__).parents[2] / "model_repository"
    path = tmp_path / "run.blsrec"
    with bls.ModelRepository(models) as repo:
        repo.load("bls_sync")
        repo.load("add_sub")
        pair = {"INPUT0": floats(1, 2, 3, 4), "INPUT1": floats(4, 3, 2, 1)}
        with bls.record(path, tensors="all"):
            response = repo.infer("bls_sync", {"MODEL_NAME": ["add_sub"], **pair})
            assert response.error is None
    status, out, _ = command(str(path), str(models))
    assert (status, "✓ run.blsrec: 1 request answered as recorded" in out) == (0, True)
    status, out, _ = command(str(path), str(models), "--only", "add_sub", "--json")
    assert (status, json.loads(out)["only"]) == (0, "add_sub")
    status, _, err = command(str(path), str(models), "--only", "none")
    assert status == 2
    assert "no request to model 'none'" in err


@pytest.mark.parametrize(
    ("place", "what", "said"),
    [
        ("tritonserver 2.51.0", "output 'Y': FP32 recorded, FP64 now", "NumPy 1"),
        ("tritonserver 2.51.0", "AttributeError: 'NoneType' object has no attribute 'x'", "has_error()"),
        ("tritonserver 2.51.0", "output 'Y': values", ""),
        ("here", "output 'Y': FP32 recorded, FP64 now", ""),
    ],
)
def test_hints_for_differences_of_a_servers_environment(place: str, what: str, said: str) -> None:
    shown = render(Replay(place=place, requests=(Resent(1, "page", (what,)),)))
    for form in (shown.text, shown.html):
        assert ("hint" in form) is bool(said)
        assert said in form
