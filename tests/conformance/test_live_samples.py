"""Every model of `model_repository/`, on both sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.conformance.conftest import FOLDERS, NO_BACKEND
from tests.conformance.sides import Sides

pytestmark = pytest.mark.triton
F32, I32, WORDS = np.float32, np.int32, np.object_
RANDOM = np.random.default_rng(20)
A, B = (RANDOM.standard_normal(7).astype(F32) for _ in range(2))
PAIR = {"INPUT0": A, "INPUT1": B}
PHOTO = RANDOM.integers(0, 256, (37, 51, 3), np.uint8)
INK = np.zeros((40, 30), np.uint8)
INK[5:35, 13:17] = 255
INK[5:9, 8:22] = 200
FEATURES = RANDOM.random((5, 64), F32)


def named(model: str, **inputs: Any) -> dict[str, Any]:
    return {"MODEL_NAME": np.array([model], WORDS), **inputs}


CASES: list[tuple[str, Mapping[str, Any]]] = [
    ("add_sub", PAIR),
    ("add_sub", {"INPUT0": A, "INPUT1": B[:3]}),
    ("add_sub", {"INPUT0": A}),
    ("add_sub", {"INPUT0": A.astype(np.float64), "INPUT1": B}),
    ("add_sub", {"INPUT0": np.zeros(0, F32), "INPUT1": np.zeros(0, F32)}),
    ("identity_device", {"INPUT": A}),
    ("identity_device", {"INPUT": np.zeros(0, F32)}),
    ("dlpack_add_sub", PAIR),
    ("dlpack_add_sub", {"INPUT0": A, "INPUT1": B[:3]}),
    ("dlpack_add_sub", {"INPUT0": np.zeros(0, F32), "INPUT1": np.zeros(0, F32)}),
    *(
        (model, {"SIGNAL": signal, "NOISE": noise})
        for model in ("leaky", "tidy")
        for signal, noise in ((A, B), (A, B[:3]), (np.zeros(0, F32), np.zeros(0, F32)))
    ),
    ("square_int32", {"IN": np.array([2], I32)}),
    ("bls_sync", named("add_sub", **PAIR)),
    ("bls_sync", named("nobody", **PAIR)),
    ("bls_sync", named("bls_decoupled_sync", **PAIR)),
    ("bls_async", named("add_sub", **PAIR)),
    ("bls_async", named("nobody", **PAIR)),
    ("bls_decoupled_sync", named("square_int32", IN=np.array([4], I32))),
    ("bls_decoupled_sync", named("square_int32", IN=np.array([0], I32))),
    ("bls_decoupled_sync", named("square_int32", IN=np.array([-1], I32))),
    ("bls_decoupled_async", named("square_int32", IN=np.array([4, 0, 1], I32))),
    ("bls_decoupled_async", named("square_int32", IN=np.array([4, -2, 1], I32))),
    ("preprocess", {"RAW_IMAGE": PHOTO}),
    ("preprocess", {"RAW_IMAGE": PHOTO[::-2, ::3]}),
    ("preprocess", {"RAW_IMAGE": PHOTO[:0]}),
    ("preprocess", {"RAW_IMAGE": PHOTO[:, :, :2]}),
    ("digit_preprocess", {"IMAGE": INK}),
    ("digit_preprocess", {"IMAGE": 255 - INK.T}),
    ("digit_preprocess", {"IMAGE": INK[:3, :3]}),
    ("digit_classifier", {"FEATURES": FEATURES}),
    ("digit_classifier", {"FEATURES": FEATURES[0]}),
    ("digit_classifier", {"FEATURES": np.zeros((33, 64), F32)}),
    ("digit_classifier", {"FEATURES": np.full((1, 64), np.nan, F32)}),
    ("digit_expert", {"FEATURES": FEATURES}),
    ("digit_expert", {"FEATURES": np.full((1, 64), np.inf, F32)}),
    ("digit_reader", {"IMAGE": INK}),
    ("digit_reader", {"IMAGE": 255 - INK}),
    ("digit_reader", {"IMAGE": INK[:3, :3]}),
]


@pytest.mark.parametrize(("model", "inputs"), CASES, ids=[f"{n}-{model}" for n, (model, _) in enumerate(CASES)])
def test_a_sample(sides: Sides, model: str, inputs: Mapping[str, Any]) -> None:
    sides.same(model, inputs, close=model.startswith(("digit_", "preprocess")))


def test_every_sample_has_a_case() -> None:
    samples = {path.name for path in FOLDERS[0].iterdir() if path.is_dir()}
    assert {model for model, _ in CASES} == samples - NO_BACKEND
