"""What `bls.record` keeps, and what comes back from its file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook import pb_utils
from bls_notebook.display import render
from tests.testing.models import floats, pipeline, send_all


@pytest.fixture(scope="module")
def repo() -> Iterator[bls.ModelRepository]:
    with pipeline() as repo:
        yield repo


@pytest.fixture(scope="module")
def recorded(repo: bls.ModelRepository, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "run.blsrec"
    with bls.record(path, tensors="all"):
        send_all(repo, "s")
    return path


def test_every_hop_is_there_as_it_was(recorded: Path) -> None:
    recording = bls.open_file(recorded)
    requests = recording.requests(hops=True)
    first, double, stream = requests[:3]
    assert [each.model for each in requests] == [
        "page", "double", "stream", "page", "double", "stream", "words", "stream", "twice", "double",
        "double", "bits", "last", "last", "last", "nobody",
    ]  # fmt: skip
    assert first.arguments() == {"request_id": "first", "parameters": {"lang": "en"}}
    assert (double.kept.parent, stream.kept.parent, first.kept.parent) == (first.id, first.id, 0)
    # `double` writes to its input: what it was asked is kept, not what it made of that.
    assert (double.inputs["X"].tolist(), double.responses[0].outputs["Y"].tolist()) == ([0, 1, 2], [0, 2, 4])
    assert (dict(double.parameters), dict(double.responses[0].parameters)) == ({"a": 1}, {"times": 1})
    assert [list(r.outputs.values()) for r in stream.responses] == [[0], [2], [4], []]
    assert [r.final for r in stream.responses] == [False, False, False, True]
    assert requests[3].responses[0].error is not None
    assert "below zero" in requests[3].responses[0].error
    words = requests[6]
    assert words.inputs["T"].tolist() == [b"a", "ü\0".encode()]
    assert words.responses[0].outputs["U"].tolist() == [b"<a>", "<ü\0>".encode()]
    steps = [each for each in requests if each.kept.kind == "ensemble"]
    assert [each.responses[0].outputs["Y"].tolist() for each in steps] == [[2, 4], [4, 8]]
    bits = requests[11]
    assert isinstance(bits.inputs["X"], pb_utils.Tensor)
    assert bits.inputs["X"]._array.tolist() == bits.responses[0].outputs["Y"]._array.tolist()
    sequence = requests[12:15]
    assert [each.flags for each in sequence] == [1, 0, 2]
    assert {each.correlation_id for each in sequence} == {"s"}
    assert "is not found" in str(requests[-1].responses[0].error)
    assert {each.id for each in requests} == {span.id for span in recording.session.spans}
    first.inputs["X"][:] = 9  # a copy
    assert recording.requests()[0].inputs["X"].tolist() == [0, 1, 2]


def test_only_what_came_from_outside(repo: bls.ModelRepository) -> None:
    with bls.record() as recorder:
        repo.infer("page", {"X": floats(1)})
        list(repo.stream("stream", {"X": floats(3)}))
    recording = recorder.recording
    assert [each.model for each in recording.requests()] == ["page", "stream"]
    assert [len(each.responses) for each in recording.requests()] == [1, 2]
    hop = recording.record.requests[1]
    assert (hop.model, hop.inputs[0].shape, hop.inputs[0].values, hop.inputs[0].cut) == ("double", (1,), "", False)
    with pytest.raises(
        bls.BLSError, match=r"request 2 to 'double': the values of 'X' were not recorded.*tensors='all'"
    ):
        recording.answer_of("double")
    with pytest.raises(bls.BLSError, match=r"no request to model 'double' from outside .only other models"):
        recording.requests("double")
    with pytest.raises(bls.BLSError, match="no request to model 'none'; it has requests to page, stream"):
        recording.requests("none")


def test_sizes_are_bounded_and_what_is_cut_is_told(repo: bls.ModelRepository, tmp_path: Path) -> None:
    told = "cut.blsrec lacks the values of 2 tensors \\(64 B\\): over limit=1; record with a larger limit"
    with pytest.warns(UserWarning, match=told), bls.record(tmp_path / "cut.blsrec", limit=1) as recorder:
        repo.infer("double", {"X": floats(*range(8))})
    assert "0 B of values, 64 B left out\n" in render(recorder.record).text
    assert "over the limit" not in render(recorder.record).text  # the warning has said it
    with bls.record(tensors="all", limit="0.1 kB") as recorder:
        repo.infer("double", {"X": floats(*range(10))})
        repo.infer("double", {"X": floats(*range(10))})
        repo.infer("double", {"X": floats(1)})
    record = recorder.record
    assert (record.cut, record.cut_bytes, record.kept_bytes) == (2, 80, 88)
    assert "2 tensors (80 B) left out: over the limit of 100 B" in render(record).text
    with pytest.raises(bls.BLSError, match="over the limit of 100 bytes"):
        recorder.recording.requests()


def test_room_for_requests_is_bounded(repo: bls.ModelRepository) -> None:
    with bls.record(requests=2) as recorder:
        for _ in range(3):
            repo.infer("double", {"X": floats(1)})
    assert (len(recorder.recording), recorder.record.dropped) == (2, 1)


def test_recordings_and_profiles_overlap(repo: bls.ModelRepository) -> None:
    with bls.record() as outer, bls.profile() as session:
        repo.infer("double", {"X": floats(1)})
        with bls.record() as inner:
            repo.infer("double", {"X": floats(2)})
        repo.infer("double", {"X": floats(3)})
    assert [each.inputs["X"].tolist() for each in outer.recording.requests()] == [[1], [2], [3]]
    assert [each.inputs["X"].tolist() for each in inner.recording.requests()] == [[2]]
    assert len(session.record.spans) == 3


def test_a_body_that_fails_is_recorded(repo: bls.ModelRepository, tmp_path: Path) -> None:
    path = tmp_path / "run.blsrec"

    def fails() -> None:
        with bls.record(path):
            repo.infer("double", {"X": floats(1)})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert (len(bls.open_file(path)), [each.name for each in tmp_path.iterdir()]) == (1, ["run.blsrec"])


def test_the_same_answers_in_place_of_the_model(recorded: Path, repo: bls.ModelRepository) -> None:
    recording = bls.open_file(recorded)
    double, stream, words = map(recording.answer_of, ("double", "stream", "words"))

    def asked(model: str, parameters: dict[str, Any] | None = None, **inputs: Any) -> pb_utils.InferenceRequest:
        tensors = [pb_utils.Tensor(name, value) for name, value in inputs.items()]
        return pb_utils.InferenceRequest(
            model_name=model, inputs=tensors, requested_output_names=[], parameters=parameters
        )

    answer = double(asked("double", {"a": 1}, X=floats(0, 1, 2)))
    assert answer.output_tensors()[0].as_numpy().tolist() == [0, 2, 4]
    assert answer.parameters() == '{"times": 1}'
    streamed = stream(asked("stream", X=floats(3, 4)))
    assert [each.output_tensors()[0].as_numpy().tolist() for each in streamed] == [[3], [4]]
    texts = np.array([b"a", "ü\0".encode()], np.object_)
    assert words(asked("words", T=texts)).output_tensors()[0].as_numpy().tolist() == [b"<a>", "<ü\0>".encode()]
    with pytest.raises(pb_utils.TritonModelException) as caught:
        double(asked("double", {"a": 1}, X=floats(0, 1, 3)))
    assert str(caught.value) == (
        "recording 'run.blsrec': no such request to model 'double'; the nearest is request 2, where input 'X' "
        "differs in 1 of 3 elements"
    )
    with pytest.raises(pb_utils.TritonModelException, match=r"input 'X' is FP32 of shape \[3\], here INT64"):
        double(asked("double", {"a": 1}, X=np.arange(4)))
    with pytest.raises(pb_utils.TritonModelException, match=r"the parameters are {'a': 1}, here {}"):
        double(asked("double", X=floats(0, 1, 2)))


def test_requests_are_told_apart_by_the_outputs_they_ask_for() -> None:
    """Equal inputs, other outputs asked for: each gets its own answer, whatever the order."""
    config = "".join(
        f'{kind} {{ name: "{name}" data_type: TYPE_INT64 dims: [1] }}\n'
        for kind, name in (("input", "X"), ("output", "A"), ("output", "B"))
    )
    tell = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    asked = 0

    def execute(self, requests):
        self.asked += len(requests)
        tensors = [pb_utils.Tensor(name, np.array([self.asked])) for name in "AB"]
        return [pb_utils.InferenceResponse(tensors) for _ in requests]
"""

    def ask(*outputs: str) -> dict[str, int]:
        response = repo.infer("tell", {"X": [7]}, outputs=list(outputs))
        return {name: array.item() for name, array in response.as_numpy().items()}

    with bls.ModelRepository() as repo:
        repo.define("tell", tell, config=config)
        with bls.record() as recorder:
            assert [ask("A"), ask("B"), ask("A"), ask()] == [{"A": 1}, {"B": 2}, {"A": 3}, {"A": 4, "B": 4}]
        with repo.stub("tell", recorder.recording):
            assert [ask(), ask("B"), ask("A"), ask("A"), ask("A")] == [
                {"A": 4, "B": 4}, {"B": 2}, {"A": 1}, {"A": 3}, {"A": 3},
            ]  # fmt: skip
        with bls.record() as recorder:
            assert [ask("A"), ask("A")] == [{"A": 5}, {"A": 6}]
        with repo.stub("tell", recorder.recording):
            error = repo.infer("tell", {"X": [7]}).error
            assert "the nearest is request 1, where output 'B' is not requested" in error.message()
        with bls.record() as recorder:
            assert ask() == {"A": 7, "B": 7}
        with repo.stub("tell", recorder.recording):  # what is not asked for is left out
            assert ask("B") == {"B": 7}
        with bls.record(tensors="all", limit=16) as recorder:  # of a response that does not fit, what does
            ask()
        kept = recorder.record
        assert (kept.kept_bytes, kept.cut, kept.cut_bytes) == (16, 1, 8)


def test_a_recording_is_shown(recorded: Path) -> None:
    shown = render(bls.open_file(recorded).record)
    assert "run.blsrec · 10 requests to page, words, stream, twice, bits, last, nobody" in shown.text
    assert "✗ ValueError: below zero" in shown.text
    assert "BF16[2] [1.5, -2.0]" in shown.html


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": "none/run.blsrec"}, "there is no folder 'none' to write 'run.blsrec' to"),
        ({"path": "."}, "is a folder"),
        ({"path": 3}, "expected the path of a file"),
        ({"tensors": "every"}, "tensors: got 'every', expected 'outside' or 'all'"),
        ({"limit": 0}, "limit: got 0"),
        ({"limit": "5 ms"}, "limit: got '5 ms', expected bytes from 1 on, or a size such as '20 MB'"),
        ({"requests": True}, "requests: got True"),
    ],
)
def test_wrong_arguments_of_record_are_told_first(
    given: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(bls.BLSError, match=said) as caught, bls.record(**given):
        pytest.fail("it has begun")
    assert "\n" not in str(caught.value)


def test_a_recorder_has_no_recording_before_it_begins() -> None:
    with pytest.raises(bls.BLSError, match="has not begun"):
        _ = bls.record().recording
