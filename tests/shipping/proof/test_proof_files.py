"""Requests that ship with an export: what proves its answers elsewhere, and what measures it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.shipping.proof.proof_script import RawAnswer, _seconds, differences, main

SAMPLES = Path(__file__).parents[3] / "model_repository"
WORDS = """\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        words = pb_utils.get_input_tensor_by_name(request, "WORD").as_numpy()
        if b"no" in words:
            raise pb_utils.TritonModelException("no is no word")
        return pb_utils.InferenceResponse([pb_utils.Tensor("BACK", words[..., ::-1])])
"""
CONFIG = """\
max_batch_size: 4
input { name: "WORD" data_type: TYPE_STRING dims: [ 2 ] }
output { name: "BACK" data_type: TYPE_STRING dims: [ 2 ] }
"""
Files = dict[str, str]


@pytest.fixture
def repo() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository(SAMPLES) as repo:
        repo.define("words", WORDS, CONFIG)
        repo.load("square_int32")
        yield repo


def shipped(repo: bls.ModelRepository, place: Path, requests: Any, *names: str) -> Files:
    bls.export(place, *names, requests=requests, repo=repo)
    return {path.name: path.read_text() for path in place.iterdir() if path.is_file()}


@pytest.mark.slow
def test_rows_for_perf_analyzer(repo: bls.ModelRepository, tmp_path: Path) -> None:
    asked = [{"WORD": [["a", "bé"], ["", "d"]]}, {"WORD": [["yes", "no"]]}]
    files = shipped(repo, tmp_path / "out", {"words": asked}, "words")
    data = json.loads(files["perf_words.json"])
    for part, name, first in (("data", "WORD", ["a", "bé"]), ("validation_data", "BACK", ["bé", "a"])):
        rows = data[part]
        assert len(rows) == 2  # an error is nothing to measure
        assert rows[0].keys() == {name}
        assert rows[0][name]["shape"] == [2]
        encoded = b"".join(len(word.encode()).to_bytes(4, "little") + word.encode() for word in first)
        assert base64.b64decode(rows[0][name]["content"]["b64"]) == encoded
    proof = json.loads(files["requests.json"])["models"]["words"]
    assert (proof["decoupled"], proof["sequence"], len(proof["cases"])) == (False, False, 2)
    assert "no is no word" in proof["cases"][1][0]["answers"][0]["error"]
    assert "python prove.py localhost:8001" in files["README.md"]
    assert "perf_analyzer -m words --input-data perf_words.json" in files["README.md"]
    mounted = re.search(r'-v "\$PWD":/models \S+-sdk perf_analyzer -m words --input-data (\S+)', files["README.md"])
    assert mounted is not None, "it measures the given requests, not random data of the smallest shapes"
    assert mounted[1] == "/models/perf_words.json"


def test_a_recording_and_a_stream(repo: bls.ModelRepository, tmp_path: Path) -> None:
    class Recording:
        models = ("square_int32",)

        def requests(self, model: str) -> list[Any]:
            return [SimpleNamespace(inputs={"IN": np.int32([2])}, parameters={"a": 1}, correlation_id=0)]

    files = shipped(repo, tmp_path / "out", Recording())
    assert json.loads(files["perf_square_int32.json"]).keys() == {"data"}  # it validates no streams
    measured = "perf_analyzer -m square_int32 -i grpc -u localhost:8001 --streaming --input-data"
    assert f"{measured} perf_square_int32.json" in files["README.md"]
    case = json.loads(files["requests.json"])["models"]["square_int32"]["cases"][0][0]
    assert case["parameters"] == {"a": 1}
    assert [each["outputs"][0]["shape"] for each in case["answers"]] == [[1], [1]]
    again = shipped(repo, tmp_path / "again", Recording())
    assert again == files
    with pytest.raises(bls.BLSError, match="requests: none is for words"):
        bls.export(tmp_path / "none", "words", requests=Recording(), repo=repo)
    assert not (tmp_path / "none").exists()


def one(datatype: str, array: Any, name: str = "OUT") -> list[RawAnswer]:
    array = np.asarray(array)
    return [("", {name: (name, datatype, list(array.shape), array.tobytes())})]


def test_the_script_distinguishes_answers() -> None:
    nan, other = np.float32([np.nan, 1]), np.float32([-np.nan, 1])
    assert not list(differences(one("FP32", nan), one("FP32", nan), 0))
    assert list(differences(one("FP32", [np.float32(0)]), one("FP32", [np.float32(-0.0)]), 0))
    close = np.nextafter(np.float32([1, 2]), np.float32(9))
    assert list(differences(one("FP32", np.float32([1, 2])), one("FP32", close), 0))
    assert not list(differences(one("FP32", np.float32([1, 2])), one("FP32", close), 1e-5))
    assert list(differences(one("INT32", np.int32([1])), one("INT32", np.int32([2])), 1.0))
    assert list(differences(one("FP32", other), one("FP32", np.float32([1, 1])), 0))
    assert list(differences(one("FP32", nan), one("FP32", [nan]), 0)) == [
        "output 'OUT': FP32 [2] expected, got FP32 [1, 2]"
    ]
    assert not list(differences([("model 'a_0_0'\n\nAt:\n  /x.py(3): f", {})], [("model 'a_0'", {})], 0))
    for one_text, other in (("'a_1'", "'a_2'"), ("0x1", "0x2"), ("At: x(1): y", "At: x(2): y"),
                            ("a/models/x", "b/models/x"),
                            ("a  b", "a b"), ("<class 'a.K'>", "<class 'b.K'>"), ("", "no")):  # fmt: skip
        assert list(differences([(one_text, {})], [(other, {})], 0))
    assert list(differences(one("FP32", nan) * 2, one("FP32", nan), 0)) == ["2 responses expected, got 1"]


def test_the_scripts_timeout_has_a_unit(capsys: pytest.CaptureFixture[str]) -> None:
    assert [_seconds(text) for text in ("500ms", "60s", "1.5m", "1h")] == [0.5, 60, 90, 3600]
    for wrong in ("5", "0s", "s"):
        with pytest.raises(SystemExit):
            main(["--timeout", wrong])
        assert f"got '{wrong}', expected a time with its unit" in capsys.readouterr().err
