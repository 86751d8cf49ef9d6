"""The digits: two classifiers and their twins in ONNX and TorchScript, and the pipeline that asks them.

The classifiers learn while they load, so the models are loaded once for all tests here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.testing import RepositoryUnderTest

SAMPLES = Path(__file__).parents[2] / "model_repository"
pytestmark = [pytest.mark.slow, pytest.mark.triton_repository(SAMPLES, scope="session")]
INK = np.zeros((40, 30), np.uint8)
INK[5:35, 13:17] = 255


def sure(digit: int, confidence: float) -> dict[str, Any]:
    odds = np.full((1, 10), (1 - confidence) / 9, np.float32)
    odds[0, digit] = confidence
    return {"PROBABILITIES": odds, "LABEL": np.int32([[digit]])}


def in_batches(repository: RepositoryUnderTest, model: str, features: Any) -> dict[str, Any]:
    parts = [
        repository.infer(model, {"FEATURES": features[start : start + 32]}).as_numpy()
        for start in range(0, len(features), 32)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in ("LABEL", "PROBABILITIES")}


@pytest.mark.parametrize(("model", "least"), [("digit_classifier", 0.96), ("digit_expert", 0.98)])
def test_most_digits_are_read_right(
    triton_repository: RepositoryUnderTest, digits: Any, model: str, least: float
) -> None:
    """Of those that it was not taught."""
    found = in_batches(triton_repository, model, digits.features[::3])
    assert (found["LABEL"].ravel() == digits.target[::3]).mean() >= least
    triton_repository.assert_no_warnings()


@pytest.mark.parametrize("model", ["digit_classifier_onnx", "digit_classifier_torch"])
def test_the_twins_read_as_the_python_model(triton_repository: RepositoryUnderTest, digits: Any, model: str) -> None:
    pytest.importorskip("onnxruntime" if model.endswith("onnx") else "torch")
    python = in_batches(triton_repository, "digit_classifier", digits.features)
    twin = in_batches(triton_repository, model, digits.features)
    assert {name: array.dtype for name, array in twin.items()} == {name: array.dtype for name, array in python.items()}
    for name, array in python.items():
        np.testing.assert_allclose(twin[name], array, atol=1e-5)
    triton_repository.assert_no_warnings()


@pytest.mark.parametrize("model", ["digit_classifier", "digit_expert"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_are_refused(triton_repository: RepositoryUnderTest, model: str, bad: float) -> None:
    answer = triton_repository.infer(model, {"FEATURES": np.full((1, 64), bad, np.float32)})
    assert answer.error is not None
    assert "FEATURES holds NaN or infinity" in answer.error.message()


def test_digits_of_any_kind_are_read(triton_repository: RepositoryUnderTest, digits: Any) -> None:
    """Bright or dark ink, small or large, in the middle or not."""
    image = (digits.images[0] * 15).astype(np.uint8)
    large = np.kron(image, np.ones((5, 5), np.uint8))
    moved = np.pad(large, ((3, 20), (30, 1)))
    answers = [triton_repository.infer("digit_reader", {"IMAGE": each}) for each in (image, 255 - large, moved)]
    triton_repository.assert_same_answers("snapshots/a_zero.json", *answers, atol=1e-4)


@pytest.mark.parametrize(("confidence", "asked"), [(0.7, "digit_classifier"), (0.5, "digit_expert")])
def test_the_expert_is_asked_when_unsure(triton_repository: RepositoryUnderTest, confidence: float, asked: str) -> None:
    with (
        triton_repository.stub("digit_classifier", sure(9, confidence)),
        triton_repository.stub("digit_expert", sure(3, 0.9)),
    ):
        answer = triton_repository.infer("digit_reader", {"IMAGE": INK})
    triton_repository.assert_answer(answer, {"DIGIT": [3 if asked == "digit_expert" else 9], "ASKED": [asked]})
    triton_repository.assert_called("digit_preprocess", 1, inputs={"IMAGE": INK})
    order = ["digit_preprocess", "digit_classifier", *["digit_expert"][: asked == "digit_expert"]]
    triton_repository.assert_called_in_order(*order)


def test_a_blank_picture_asks_no_classifier(triton_repository: RepositoryUnderTest) -> None:
    answer = triton_repository.infer("digit_reader", {"IMAGE": INK[:3, :3]})
    assert "is blank; give one with a digit on it" in answer.error.message()
    triton_repository.assert_not_called("digit_classifier")


@pytest.mark.parametrize("text", ["", "1.5", "much"])
def test_a_threshold_that_is_none(triton_repository: RepositoryUnderTest, text: str) -> None:
    folder = SAMPLES / "digit_reader"
    config = (folder / "config.pbtxt").read_text().replace('"0.6"', f'"{text}"')
    with pytest.raises(bls.ModelLoadError, match="give a number from 0 to 1"):
        triton_repository.define("digit_reader", (folder / "1" / "model.py").read_text(), config)


def test_every_sample_is_tested() -> None:
    tests = "".join(file.read_text(encoding="utf-8") for file in Path(__file__).parent.glob("test_*.py"))
    untested = [path.name for path in SAMPLES.iterdir() if path.is_dir() and f'"{path.name}"' not in tests]
    assert not untested
