"""Other requests, and other stubs, after the first ones failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bls_notebook.__main__ import main
from tests.trying.conftest import DOUBLES, IO, calling, put

PYTHON = f'backend: "python" {IO}'


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
    assert repository.infer("pipeline", {"IN": np.ones(3, np.float32)})["OUT"].as_numpy().any()
    put(tmp_path, "hopeless", PYTHON, {"1/model.py": calling("engine", "assert 0")})
    (tmp_path / "pipeline" / "1" / "model.py").write_text(calling("engine"))
    repository, rows = trying()
    assert (rows["pipeline"].problem, "AssertionError" in rows["hopeless"].problem) == ("", True)
    assert not any("random" in note for note in rows[""].notes)
    assert not repository.infer("pipeline", {"IN": np.ones(3, np.float32)})["OUT"].as_numpy().any()


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
