"""Drills of the sample models, and the command that runs one: nothing crashes, hangs or stays behind."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.__main__ import main
from bls_notebook.testing.records import Drilled

SAMPLES = Path(__file__).parents[3] / "model_repository"
_NUMBERS = np.array([1, 2, 3, 4], np.float32)
REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "bls_sync": {"MODEL_NAME": ["add_sub"], "INPUT0": _NUMBERS, "INPUT1": _NUMBERS},
    "bls_async": {"MODEL_NAME": ["add_sub"], "INPUT0": _NUMBERS, "INPUT1": _NUMBERS},
    "bls_decoupled_sync": {"MODEL_NAME": ["square_int32"], "IN": [4]},
    "bls_decoupled_async": {"MODEL_NAME": ["square_int32"], "IN": [4, 2]},
    "tidy": {"SIGNAL": _NUMBERS, "NOISE": _NUMBERS / 2},
    "leaky": {"SIGNAL": _NUMBERS, "NOISE": _NUMBERS / 2},
}


@pytest.fixture(scope="module")
def repo() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository(SAMPLES) as repository:
        for name in ("add_sub", "square_int32", "dlpack_add_sub", *REQUESTS):
            repository.load(name)
        yield repository


@pytest.mark.parametrize("model", REQUESTS)
def test_an_error_of_a_callee_is_passed_on(repo: bls.ModelRepository, model: str) -> None:
    found = bls.drill(model, REQUESTS[model], repo=repo)
    assert len(found.callees) == 1
    for case in found.cases:
        assert case.verdict not in ("crash", "hang", "leak", "spoilt", "vague"), case.said
    for fault in ("error", "cancelled", "raises", "not-ready"):
        assert found.case(found.callees[0], fault).verdict == "clear"


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    request = ['MODEL_NAME=["add_sub"]', "INPUT0=[1, 2, 3, 4]", f"INPUT1=@{tmp_path / 'x.npy'}"]
    np.save(tmp_path / "x.npy", _NUMBERS)
    asked = ["drill", str(SAMPLES), "bls_sync", *request, "--load", "add_sub"]
    assert main([*asked, "--faults", "error,stall"]) == 0
    assert "✓ clear" in capsys.readouterr().out
    assert main([*asked, "--faults", "nan", "--json"]) == 1
    found = Drilled.from_dict(json.loads(capsys.readouterr().out))
    assert found.case("add_sub", "nan").verdict == "rubbish"
    assert main([*asked[:3], "INPUT0"]) == 2
    assert "expected INPUT=VALUE with JSON or @FILE.npy" in capsys.readouterr().err
