"""Generated requests to real models: their answers, timeouts, and other requests and stubs after the first failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bls_notebook.__main__ import main
from bls_notebook.display import render
from bls_notebook.trying import trial
from bls_notebook.trying.generated_requests import send_requests
from tests.repository.models import HEAD
from tests.trying.conftest import DOUBLES, IO, PYTHON, calling, ensemble, in_notebook, put

ONES = {"IN": np.ones(3, np.float32)}


def test_each_real_model_gets_one_generated_request(trying: Any, tmp_path: Path) -> None:
    put(tmp_path, "double", PYTHON, {"1/model.py": DOUBLES})
    put(tmp_path, "short", PYTHON, {"1/model.py": DOUBLES.replace("return ", "return 2 * ")})  # two responses
    put(tmp_path, "engine", f'platform: "tensorrt_plan" {IO}')
    _, rows = trying()
    assert {n: row.asked for n, row in rows.items() if n} == {"double": True, "short": True, "engine": False}
    assert (rows["double"].problem, rows["double"].warnings) == ("", ())
    assert "Number of InferenceResponse objects do not match" in rows["short"].problem
    _, rows = trying(ask=False)
    assert not any(row.asked for name, row in rows.items() if name)


def test_a_model_that_does_not_answer_is_cancelled(
    trying: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = "import time\n        while arrays[0].max() != 14: time.sleep(0.01)\n        return "
    put(tmp_path, "endless", PYTHON, {"1/model.py": DOUBLES.replace("return ", waits)})
    put(tmp_path, "asks", ensemble(("endless", "IN", "OUT")))
    monkeypatch.setattr(trial, "send_requests", lambda *step: send_requests(*step[:-1], 0.01))
    repository, rows = trying()
    assert rows["endless"].problem.startswith("no answer within 0.01 s")
    assert rows["asks"].warnings == ("no request was sent: it calls endless, which did not answer within 0.01 s",)
    sevens = {name: array * 0 + 7 for name, array in ONES.items()}
    assert repository.infer("endless", sevens).error is None  # the first execute was stopped


def test_an_error_after_a_stub_says_so_too(trying: Any, tmp_path: Path) -> None:
    put(tmp_path, "inner", PYTHON, {"1/model.py": calling("resize", "1 / (out[0] - out[0]).item()")})
    put(tmp_path, "outer", PYTHON, {"1/model.py": calling("inner")})
    put(tmp_path, "resize", f'backend: "x" {IO}')
    repository, rows = trying()
    assert rows["outer"].problem.endswith("(after made-up answers of resize)")
    answer = repository.infer("outer", ONES)
    assert "ZeroDivisionError" in answer.error.message() or "division" in answer.error.message()
    assert answer.stubs == ("resize",)


def test_a_response_without_outputs_is_no_answer(trying: Any, tmp_path: Path) -> None:
    empty = DOUBLES.replace('[pb_utils.Tensor("OUT", array)]', "[]")
    put(tmp_path, "empty", PYTHON, {"1/model.py": empty})
    put(tmp_path, "ends", f"{PYTHON} sequence_batching {{ }}", {"1/model.py": empty})
    _, rows = trying()
    assert rows["empty"].problem == "the response has none of the outputs that the configuration declares"
    assert rows["ends"].problem == "", "the middle of a sequence often has none"


def test_a_failed_request_is_followed_by_others_and_the_line_is_that_of_the_answered(
    trying: Any, tmp_path: Path
) -> None:
    io = IO.replace("dims: [-1] }]", "dims: [-1] }, { name: 'K' data_type: TYPE_INT32 dims: [1] optional: true }]", 1)
    needs_k = DOUBLES.replace("arrays =", "[request.inputs()[1] for request in requests]\n        arrays =")
    put(tmp_path, "needs_k", f'backend: "python" {io}', {"1/model.py": needs_k})
    put(
        tmp_path,
        "several",
        PYTHON,
        {"1/model.py": DOUBLES.replace("arrays =", "assert requests[0].inputs()[0].shape()[0] > 1\n        arrays =")},
    )
    _, rows = trying()
    assert [rows[name].problem for name in ("needs_k", "several")] == ["", ""]
    assert rows[""].requests == ("%bls needs_k IN=0.5 K=1", "%bls several IN=[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]")


def test_stubs_answer_random_numbers_only_if_zeros_fail(trying: Any, tmp_path: Path) -> None:
    put(tmp_path, "pipeline", PYTHON, {"1/model.py": calling("engine", "assert out.any(), 'found nothing'")})
    put(tmp_path, "engine", f'platform: "tensorrt_plan" {IO}')
    repository, rows = trying()
    assert (rows["pipeline"].problem, rows["engine"].kind) == ("", "stub")
    assert "the stubs answer random numbers, because pipeline fails with zeros" in rows[""].notes
    assert repository.infer("pipeline", ONES)["OUT"].as_numpy().any()
    put(tmp_path, "hopeless", PYTHON, {"1/model.py": calling("engine", "assert 0")})
    (tmp_path / "pipeline" / "1" / "model.py").write_text(calling("engine"))
    repository, rows = trying()
    assert (rows["pipeline"].problem, "AssertionError" in rows["hopeless"].problem) == ("", True)
    assert not any("random" in note for note in rows[""].notes)
    assert not repository.infer("pipeline", ONES)["OUT"].as_numpy().any()


def test_a_model_that_closes_its_streams_closes_no_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    closes = "import sys\nsys.stdout.close()\nsys.stderr.close()\n" + DOUBLES.replace(
        "arrays =", "sys.stdout.close()\n        arrays ="
    )
    put(tmp_path, "closes", PYTHON, {"1/model.py": closes})
    put(tmp_path, "prints", PYTHON, {"1/model.py": "print('hello')\n" + DOUBLES})
    assert main(["try", str(tmp_path)]) == 0
    written = capsys.readouterr()
    assert "2 of 2 answered" in written.out
    assert "hello" in written.err


def test_a_sequence_gets_its_start_middle_and_end(trying: Any, tmp_path: Path) -> None:
    controls = "".join(
        f'{{ name: "{kind}" control [{{ kind: CONTROL_SEQUENCE_{kind} int32_false_true: [0, 1] }}] }}, '
        for kind in ("START", "END")
    ).rstrip(", ")
    sums = f"""{HEAD}

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        start, end, x = (pb_utils.get_input_tensor_by_name(request, n).as_numpy() for n in ("START", "END", "IN"))
        assert not (start[0] and end[0]), "a sequence has a start and an end"
        self.sum = x if start[0] else self.sum + x
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", self.sum)])
"""
    put(tmp_path, "sums", f"{PYTHON} sequence_batching {{ control_input [{controls}] }}", {"1/model.py": sums})
    _, rows = trying()
    assert (rows["sums"].problem, rows["sums"].asked) == ("", True)
    lines = rows[""].requests[0].split("\n")
    assert [line.split("--sequence ")[1] for line in lines] == ["1:start", "1", "1:end"]


def test_a_model_whose_every_request_fails_has_no_tick(trying: Any, tmp_path: Path) -> None:
    put(tmp_path, "fails", PYTHON, {"1/model.py": DOUBLES.replace("return ", "raise ValueError(1)\n        return ")})
    _, rows = trying()
    assert "ValueError" in rows["fails"].problem
    assert "✓" not in render(rows[""]).text


def test_a_package_that_is_imported_by_a_request_is_named(trying: Any, tmp_path: Path) -> None:
    late = DOUBLES.replace("arrays = ", "import MeCab; arrays = ")
    put(tmp_path, "late", PYTHON, {"1/model.py": late})
    _, rows = trying()
    assert (rows["late"].kind, "No module named 'MeCab'" in rows["late"].problem) == ("real", True)
    assert in_notebook(rows["late"].remedy) == "`%pip install mecab-python3`; then `%tritonrepo reload late`"
